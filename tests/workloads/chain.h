/* The kernel and the model of a chain of read-modify-write rounds.
 * Each round maps every 64-bit word x to x * MULTIPLIER + INCREMENT. The multiplier is 5 modulo 8 and the
 * increment odd, so the lowest byte changes in every round and all others nearly always: a stale
 * restore shows. k rounds are again one multiplication and one addition, so the check is cheap. */
#ifndef TURNUS_WORKLOADS_CHAIN_H
#define TURNUS_WORKLOADS_CHAIN_H

#include <stdint.h>

#define MULTIPLIER 6364136223846793005ull
#define INCREMENT 1442695040888963407ull

/* Value of word `index` before the first round. */
static inline uint64_t chain_start(uint64_t seed, uint64_t index) {
    return (index + 1) * 0x9e3779b97f4a7c15ull ^ seed;
}

/* After `rounds` rounds a word x is x * multiplier + increment. */
struct ChainModel { uint64_t multiplier, increment; };

static inline struct ChainModel chain_model(uint64_t rounds) {
    struct ChainModel model = {1, 0};
    for (uint64_t round = 0; round < rounds; round++) {
        model.increment = model.increment * MULTIPLIER + INCREMENT;
        model.multiplier *= MULTIPLIER;
    }
    return model;
}

static const char chain_ptx[] =
    ".version 7.0\n.target sm_60\n.address_size 64\n"
    /* start(words, count, first index, seed) */
    ".visible .entry start(.param .u64 words, .param .u64 count, .param .u64 first, .param .u64 seed)\n{\n"
    ".reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<12>;\n"
    "ld.param.u64 %rd1, [words]; ld.param.u64 %rd2, [count]; ld.param.u64 %rd3, [first]; ld.param.u64 %rd4, [seed];\n"
    "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
    "mul.wide.u32 %rd5, %r1, %r2; cvt.u64.u32 %rd6, %r3; add.s64 %rd5, %rd5, %rd6;\n"
    "setp.ge.u64 %p1, %rd5, %rd2; @%p1 bra DONE;\n"
    "add.s64 %rd7, %rd5, %rd3; add.s64 %rd7, %rd7, 1;\n"
    "mov.u64 %rd8, 0x9e3779b97f4a7c15; mul.lo.s64 %rd7, %rd7, %rd8; xor.b64 %rd7, %rd7, %rd4;\n"
    "cvta.to.global.u64 %rd9, %rd1; shl.b64 %rd10, %rd5, 3; add.s64 %rd11, %rd9, %rd10;\n"
    "st.global.u64 [%rd11], %rd7;\nDONE:\nret;\n}\n"
    /* step(words, count): one round */
    ".visible .entry step(.param .u64 words, .param .u64 count)\n{\n"
    ".reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<12>;\n"
    "ld.param.u64 %rd1, [words]; ld.param.u64 %rd2, [count];\n"
    "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
    "mul.wide.u32 %rd5, %r1, %r2; cvt.u64.u32 %rd6, %r3; add.s64 %rd5, %rd5, %rd6;\n"
    "setp.ge.u64 %p1, %rd5, %rd2; @%p1 bra DONE;\n"
    "cvta.to.global.u64 %rd9, %rd1; shl.b64 %rd10, %rd5, 3; add.s64 %rd11, %rd9, %rd10;\n"
    "ld.global.u64 %rd3, [%rd11];\n"
    "mov.u64 %rd7, 6364136223846793005; mov.u64 %rd8, 1442695040888963407;\n"
    "mad.lo.s64 %rd4, %rd3, %rd7, %rd8;\n"
    "st.global.u64 [%rd11], %rd4;\nDONE:\nret;\n}\n";

#endif
