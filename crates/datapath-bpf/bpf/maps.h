/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The maps, by the names that the loader uses. The loader sets sizes that are 1 here. The daemon
 * maps plain arrays into its memory; a program looks an element up in a few instructions without a
 * call.
 *
 * The arrays that most packets read are tables: array maps of one element, in which the loader
 * makes room for all entries. Programs know their addresses, so the address of an entry is one
 * addition and nothing goes through the stack.
 */
#ifndef SLIPSWITCH_MAPS_H
#define SLIPSWITCH_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "layout.h"
#include "settings.h"
#include "state.h"

/* TABLE - Declares a table of entries of `struct type`. */
#define TABLE(type, name) struct type name##_table[1] SEC(".data." #name)

/* opaque - Hides from the compiler how a variable was computed. Otherwise the compiler may compute
 * it again from its sources in a form that the verifier does not follow. */
#define opaque(var) asm volatile("" : "+r"(var))

/**
 * ENTRY_OF - Returns the address of an entry of a table.
 * @name: the table
 * @number: number of the entry
 * @entries: how many entries the table has
 *
 * The verifier accepts the address only when it is computed from the very register that was
 * compared with `entries`, which the opaque() calls ensure.
 *
 * Return: NULL when `number` is beyond the end.
 */
#define ENTRY_OF(name, number, entries)                             \
	({                                                          \
		__typeof__(&name##_table[0]) entry_ = name##_table; \
		__u64 at_ = (number);                               \
		opaque(entry_);                                     \
		opaque(at_);                                        \
		if (at_ < (entries)) {                              \
			opaque(at_);                                \
			entry_ += at_;                              \
		} else {                                            \
			entry_ = 0;                                 \
		}                                                   \
		entry_;                                             \
	})

/* [cpu * settings.emc_lines + line] */
TABLE(emc_line, emc);

/* By CPU. */
TABLE(last_flow, last_flows);

/* One element. */
TABLE(epochs, epochs);

/* By CPU. */
TABLE(moves, moves);

/* One element. */
TABLE(config, config);

/* By datapath port number. */
TABLE(port, ports);

/* ifindex -> port. */
TABLE(iface, ifaces);

/* Flows, by slot number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

/* The other part of each flow, by slot number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slot_detail);
} details SEC(".maps");

/* Masks, in the order of a scan. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct mask);
} masks SEC(".maps");

/* Hash of a key under one mask -> slot number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bucket);
} flow_index asm("index") SEC(".maps"); /* C has a function index() */

/* Hash of a key under the union of the masks -> slot number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cache_line);
} cache SEC(".maps");

/* Recent counts of flows: [shard * max_flows + slot] */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct recent);
} recent SEC(".maps");

/* Earlier counts of flows, by slot number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct totals);
} totals SEC(".maps");

/* Actions that are more than one output. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct program);
} programs SEC(".maps");

/* Outer headers of tunnels. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, TUNNEL_HEADERS);
	__type(key, __u32);
	__type(value, struct tunnel_header);
} tunnel_headers SEC(".maps");

/* [shard * MAX_PORTS + port] */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_PORTS);
	__type(key, __u32);
	__type(value, struct port_stats);
} port_stats SEC(".maps");

/* By shard. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

/* By meter id. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_METERS);
	__type(key, __u32);
	__type(value, struct meter);
} meters SEC(".maps");

/* By datapath port number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_PORTS);
	__type(key, __u32);
	__type(value, struct policer);
} policers SEC(".maps");

/* enum tail -> program. Each hook has a map of its own. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, TAILS);
	__type(key, __u32);
	__type(value, __u32);
} tails SEC(".maps");

/* The state of the packet that a CPU processes. Each hook has a map of its own. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct state);
} states SEC(".maps");

/* Devices that XDP may redirect to, by port number. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, MAX_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} devmap SEC(".maps");

/* Sets of ports for copies at XDP, by number of the set. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, PORT_SETS);
	__type(key, __u32);
	__type(value, struct port_set);
} port_sets SEC(".maps");

/* One element. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bond_places);
} bond_places SEC(".maps");

/* By place. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_BONDS);
	__type(key, __u32);
	__type(value, struct bond);
} bonds SEC(".maps");

/* [shard * MAX_BONDS + place] */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_BONDS);
	__type(key, __u32);
	__type(value, struct bond_bytes);
} bond_bytes SEC(".maps");

/* The number of no slot; slots has no element there. */
#define NO_SLOT 0xffffffffu

/* Returns the state of this CPU's packet; NULL never, but the verifier requires a check. */
static __always_inline struct state *state_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&states, &zero);
}

/* Returns the configuration, which may change at any time. */
static __always_inline const volatile struct config *config_here(void)
{
	return config_table;
}

/* Returns the other part of a flow, or NULL when there is no such slot. */
static __always_inline struct slot_detail *detail_of(__u32 slot)
{
	return bpf_map_lookup_elem(&details, &slot);
}

/* Returns a port by its number, or NULL when the number is no port's (NO_PORT, for example). */
static __always_inline struct port *port_of(__u32 number)
{
	return ENTRY_OF(ports, number, MAX_PORTS);
}

#endif
