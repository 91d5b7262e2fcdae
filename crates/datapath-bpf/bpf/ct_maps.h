/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The maps of the table of connections. The daemon makes and pins them (src/ct_memory.rs), and the
 * loader puts them in place of these declarations. */
#ifndef SLIPSWITCH_CT_MAPS_H
#define SLIPSWITCH_CT_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>

#include "ct_layout.h"

/* One element. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ct_config);
} ct_config SEC(".maps");

/* The buckets of one generation of the index. */
struct ct_buckets {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	__uint(max_entries, 1 << CT_INDEX_MIN_SHIFT);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct ct_bucket));
};

/* By generation. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, CT_INDEX_GENERATIONS);
	__type(key, __u32);
	__array(values, struct ct_buckets);
} ct_index SEC(".maps");

/* The connections of one chunk. All chunks have one size, so a lookup needs no call. */
struct ct_chunk {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << CT_CHUNK_SHIFT);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct ct_conn));
};

/* By number of the chunk. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, CT_CHUNKS);
	__type(key, __u32);
	__array(values, struct ct_chunk);
} ct_chunks SEC(".maps");

/* Free slots. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CT_RINGS);
	__type(key, __u32);
	__type(value, struct ct_ring);
} ct_free SEC(".maps");

/* By zone. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CT_ZONES);
	__type(key, __u32);
	__type(value, struct ct_zone);
} ct_zones SEC(".maps");

/* By number of the policy. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CT_POLICIES);
	__type(key, __u32);
	__type(value, struct ct_policy);
} ct_policies SEC(".maps");

/* By number of the extension. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CT_EXTENSIONS);
	__type(key, __u32);
	__type(value, struct ct_extension);
} ct_exts SEC(".maps");

/* ct_load - Reads a word that other threads may change at any time. */
#define ct_load(word) (*(volatile __u64 *)&(word))

/* ct_store - Writes a word of a connection that no other thread uses yet. */
#define ct_store(word, value) (*(volatile __u64 *)&(word) = (value))

/**
 * ct_exchange - Replaces a word when it still has the value @old. A full barrier.
 *
 * Return: true when it was replaced.
 */
static __always_inline bool ct_exchange(__u64 *word, __u64 old, __u64 new)
{
	return __sync_val_compare_and_swap(word, old, new) == old;
}

/* Returns the configuration; NULL never, but the verifier requires a check. */
static __always_inline struct ct_config *ct_config_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&ct_config, &zero);
}

/* Returns the connection in a slot, in any phase, or NULL when there is no such slot. */
static __always_inline struct ct_conn *ct_conn_at(__u32 slot)
{
	__u32 number = slot >> CT_CHUNK_SHIFT, place = slot & ((1u << CT_CHUNK_SHIFT) - 1);
	void *chunk = bpf_map_lookup_elem(&ct_chunks, &number);

	return chunk ? bpf_map_lookup_elem(chunk, &place) : 0;
}

/* Returns a zone; NULL never. */
static __always_inline struct ct_zone *ct_zone_of(__u16 zone)
{
	__u32 number = zone;

	return bpf_map_lookup_elem(&ct_zones, &number);
}

/* Returns a timeout policy; NULL when the number is no policy's. */
static __always_inline struct ct_policy *ct_policy_of(__u32 number)
{
	return bpf_map_lookup_elem(&ct_policies, &number);
}

/* Returns the present tick. */
static __always_inline __u32 ct_now(void)
{
	return bpf_ktime_get_coarse_ns() >> CT_TICK_SHIFT;
}

#endif
