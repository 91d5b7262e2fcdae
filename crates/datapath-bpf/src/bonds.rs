// SPDX-License-Identifier: Apache-2.0
//! Bonds in the shared arrays. The id of a bond leads to its place; the place stays as long as the
//! bond does.

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use datapath::{BOND_BUCKETS, BondTable, BucketBytes, PortNo, Refusal};

use crate::layout::{BondEntry, BondPlaces, MAX_BONDS, MAX_PORTS, NO_MEMBER};
use crate::maps::Maps;

/// Returns the place of a bond; `None`: there is no such bond.
fn place(maps: &Maps, id: u32) -> Option<u32> {
    if id >= MAX_PORTS {
        return None;
    }
    let at = offset_of!(BondPlaces, of) + id as usize;
    let word = maps.bond_places.word(0, at & !7).load(Ordering::Relaxed).to_ne_bytes();
    let place = word.get(at & 7)?.checked_sub(1)?;
    (u32::from(place) < MAX_BONDS).then_some(place.into())
}

/// Sets the place of a bond; `None` removes the bond. One thread at a time.
fn set_place(maps: &Maps, id: u32, place: Option<u32>) {
    let at = offset_of!(BondPlaces, of) + id as usize;
    let word = maps.bond_places.word(0, at & !7);
    let mut bytes = word.load(Ordering::Relaxed).to_ne_bytes();
    if let Some(byte) = bytes.get_mut(at & 7) {
        *byte = place.map_or(0, |place| place as u8 + 1); // below MAX_BONDS
    }
    word.store(u64::from_ne_bytes(bytes), Ordering::Release);
}

/// Returns true when there is a bond with this id.
pub(crate) fn has(maps: &Maps, id: u32) -> bool {
    place(maps, id).is_some()
}

/// Returns the ids of all bonds, in ascending order.
pub(crate) fn ids(maps: &Maps) -> Vec<u32> {
    (0..MAX_PORTS).filter(|id| has(maps, *id)).collect()
}

/// Sets or replaces the table of a bond. A new bond has sent nothing so far. One thread at a time.
///
/// # Errors
///
/// Refuses an id or a member that is no port number here, and one bond more than there is room for.
pub(crate) fn set(maps: &Maps, id: u32, table: &BondTable) -> Result<(), Refusal> {
    let is_port = |port: &PortNo| port.0 < MAX_PORTS;
    if id >= MAX_PORTS || !table.buckets.iter().flatten().all(is_port) {
        return Err(Refusal::Bond);
    }
    let mut entry = BondEntry { basis: table.basis.into(), members: [NO_MEMBER; BOND_BUCKETS] };
    for (to, member) in entry.members.iter_mut().zip(table.buckets.iter()) {
        *to = member.map_or(NO_MEMBER, |member| member.0 as u16); // below MAX_PORTS
    }
    if let Some(place) = place(maps, id) {
        maps.bonds.write(place as usize, &entry);
        return Ok(());
    }
    let taken: Vec<u32> = ids(maps).into_iter().filter_map(|id| place(maps, id)).collect();
    let free = (0..MAX_BONDS).find(|place| !taken.contains(place)).ok_or(Refusal::Bond)?;
    shards(maps, free).for_each(|at| maps.bond_bytes.zero(at));
    maps.bonds.write(free as usize, &entry);
    set_place(maps, id, Some(free));
    Ok(())
}

/// Removes a bond. A program that has just read its place sends to the members once more, or to those
/// of a bond that takes the place at once. One thread at a time.
pub(crate) fn remove(maps: &Maps, id: u32) {
    if has(maps, id) {
        set_place(maps, id, None);
    }
}

/// Returns the table of a bond, whose members are those that buckets have now.
pub(crate) fn table(maps: &Maps, id: u32) -> Option<BondTable> {
    let entry = maps.bonds.read(place(maps, id)? as usize);
    let of = |bucket: u8| {
        let member = *entry.members.get(usize::from(bucket))?;
        (u32::from(member) < MAX_PORTS).then_some(PortNo(member.into()))
    };
    let members = (0..=u8::MAX).filter_map(of);
    Some(BondTable::new(entry.basis as u32, members, of)) // 32 bits
}

fn shards(maps: &Maps, place: u32) -> impl Iterator<Item = usize> {
    (0..maps.sizes.shards).map(move |shard| (shard * MAX_BONDS + place) as usize)
}

/// Returns the bytes that each bucket has sent, over all shards.
pub(crate) fn bytes(maps: &Maps, id: u32) -> Option<BucketBytes> {
    let mut sum: BucketBytes = Box::new([0; BOND_BUCKETS]);
    for at in shards(maps, place(maps, id)?) {
        let sent = maps.bond_bytes.read(at);
        sum.iter_mut().zip(sent.of).for_each(|(sum, sent)| *sum = sum.wrapping_add(sent));
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::Config;
    use crate::maps::Sizes;

    fn maps() -> Maps {
        Maps::private(Sizes::new(&Config { max_flows: 1024, ..Config::default() }, 2))
    }

    fn to(member: u32) -> BondTable {
        BondTable::new(7, [PortNo(member)], |bucket| (bucket != 9).then_some(PortNo(member)))
    }

    #[test]
    fn bonds_come_and_go() {
        let maps = maps();
        assert_eq!((ids(&maps), table(&maps, 3)), (vec![], None));
        set(&maps, 3, &to(4)).unwrap();
        set(&maps, 8, &to(9)).unwrap();
        assert_eq!((ids(&maps), table(&maps, 3)), (vec![3, 8], Some(to(4))));
        set(&maps, 3, &to(5)).unwrap();
        assert_eq!((table(&maps, 3), table(&maps, 8)), (Some(to(5)), Some(to(9))));
        remove(&maps, 3);
        remove(&maps, 3);
        assert_eq!((ids(&maps), has(&maps, 3), bytes(&maps, 3)), (vec![8], false, None));
        assert_eq!(table(&maps, 8), Some(to(9)));
        assert_eq!(set(&maps, MAX_PORTS, &to(5)), Err(Refusal::Bond));
        assert_eq!(set(&maps, 1, &to(MAX_PORTS)), Err(Refusal::Bond));
        assert!(!has(&maps, MAX_PORTS) && !has(&maps, 1));
    }

    #[test]
    fn there_is_room_for_64_bonds() {
        let maps = maps();
        for id in 0..MAX_BONDS {
            set(&maps, id, &to(1)).unwrap();
        }
        assert_eq!(set(&maps, 100, &to(1)), Err(Refusal::Bond));
        remove(&maps, 5);
        set(&maps, 100, &to(2)).unwrap();
        assert_eq!(table(&maps, 100), Some(to(2)));
    }

    #[test]
    fn a_new_bond_has_sent_nothing() {
        let maps = maps();
        set(&maps, 3, &to(4)).unwrap();
        for at in 0..maps.bond_bytes.len() {
            maps.bond_bytes.words(at).iter().for_each(|word| word.store(5, Ordering::Relaxed));
        }
        let shards = u64::from(maps.sizes.shards);
        assert_eq!(bytes(&maps, 3).unwrap()[17], 5 * shards);
        set(&maps, 3, &to(5)).unwrap();
        assert_eq!(bytes(&maps, 3).unwrap()[255], 5 * shards, "they go on");
        remove(&maps, 3);
        set(&maps, 3, &to(5)).unwrap();
        assert_eq!(bytes(&maps, 3).unwrap()[17], 0);
    }
}
