/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The maps, by the names that the loader knows. Sizes of 1 are set by the loader. Plain arrays
 * are mapped by the daemon; looking one up is a few instructions without a call.
 *
 * What most packets look at are tables: array maps of one element, in which the loader makes room
 * for all entries. Programs know their addresses, so that an entry is an addition away and
 * nothing goes through the stack. */
#ifndef SLIPSWITCH_MAPS_H
#define SLIPSWITCH_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "layout.h"
#include "settings.h"
#include "state.h"

#define TABLE(type, name) struct type name##_table[1] SEC(".data." #name)

/* Keeps the compiler from deriving `var` anew from what it was computed of, in a form that the
 * verifier does not follow. */
#define opaque(var) asm volatile("" : "+r"(var))

/* Entry `number` of a table that has `entries`; NULL behind its end. The address is computed of
 * the number that was compared, not before. */
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

/* Of the epochs of slots. */
TABLE(epochs, epochs);

/* By CPU. */
TABLE(batch, batches);

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

/* The rest of them, by slot number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slot_detail);
} details SEC(".maps");

/* Masks, in the order of the walk. */
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
} flow_index asm("index") SEC(".maps"); /* index() is a function of C */

/* Hash of a key under the union of the masks -> slot number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cache_line);
} cache SEC(".maps");

/* What flows counted of late: [shard * max_flows + slot] */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct recent);
} recent SEC(".maps");

/* What they counted before, by slot number. */
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

/* One element. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct config);
} config SEC(".maps");

/* One table of programs for each hook. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, TAILS);
	__type(key, __u32);
	__type(value, __u32);
} tails SEC(".maps");

/* What a packet carries between programs of one hook on one CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct state);
} states SEC(".maps");

/* Where XDP may redirect to, by port number. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, MAX_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} devmap SEC(".maps");

/* By the number of a set. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, PORT_SETS);
	__type(key, __u32);
	__type(value, struct port_set);
} port_sets SEC(".maps");

static __always_inline struct state *state_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&states, &zero);
}

static __always_inline struct config *config_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&config, &zero);
}

static __always_inline struct slot_detail *detail_of(__u32 slot)
{
	return bpf_map_lookup_elem(&details, &slot);
}

static __always_inline struct port *port_of(__u32 number)
{
	return ENTRY_OF(ports, number, MAX_PORTS);
}

#endif
