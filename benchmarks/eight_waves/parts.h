// What the designs with eight waves a CU have in common: attention forward of gfx950, bfloat16,
// head_dim 128, no mask, blocks of 64 keys, tiles of 32 rows of Q. asm_src/attn/ has the kernels
// that are shipped, whose products, layouts of LDS and softmax these are.
#pragma once
// Scores that are scaled before the first exponential.
#ifndef AHEAD
#define AHEAD 8
#endif
#include "isa/buffer.h"
#include "isa/ordered.h"
#include "isa/ordered_memory.h"
#include "isa/unroll.h"
#include "isa/valu.h"
#include "priority.h"
#include "tile/buffer.h"

// Tensors of [batch, rows, heads, 128]; strides in bytes, of rows less than 2^25.
struct EightArgs {
  uint64_t q, k, v, o;
  int64_t q_batch, kv_batch, o_batch;
  int32_t q_row, kv_row, o_row;
  int32_t rows, keys;  // of a sequence; keys: a multiple of 64
  int32_t group;       // heads of q that share one of k and v
  float scale_log2;    // of the scores, times log2(e)
  int32_t padding;
};

inline constexpr int kColumns = 128, kBlock = 64, kTileRows = 32, kLoadBytes = 1024;
inline constexpr int kBlockBytes = kBlock * kColumns * 2;
// A probability may be 2^8 times what it is at its row's reference before that is renewed.
inline constexpr float kMostSum = 256;

__device__ __forceinline__ void v_add_u32(uint32_t& a, uint32_t uniform) {
  asm volatile("v_add_u32 %0, %1, %0" : "+v"(a) : "s"(uniform));
}

__device__ __forceinline__ void s_add_u32(uint32_t& a, uint32_t b) {
  asm volatile("s_add_u32 %0, %0, %1" : "+s"(a) : "s"(b) : "scc");
}

// The second for the first, and so on round.
__device__ __forceinline__ void turn(uint32_t& a, uint32_t& b, uint32_t& c) {
  uint32_t first;
  asm volatile("s_mov_b32 %3, %0\n\ts_mov_b32 %0, %1\n\ts_mov_b32 %1, %2\n\ts_mov_b32 %2, %3"
               : "+s"(a), "+s"(b), "+s"(c), "=&s"(first));
}

// ---- Memory to LDS: of a block a load brings 4 rows of K or of V
template <int kLoads>
struct Source {
  u32x4 buffer;             // of the next block's keys, and all behind: those beyond read as 0
  uint32_t offset[kLoads];  // the lane's, from that block on
  uint32_t block_bytes;

  __device__ __forceinline__ Source(uint64_t base, int keys, int row_bytes, int rows_apart,
                                    uint32_t first)
      : buffer(raw_descriptor(base, (keys - 1) * row_bytes + kColumns * 2)),
        block_bytes(kBlock * row_bytes) {
    for (int n = 0; n < kLoads; ++n) {
      offset[n] = first + n * rows_apart * row_bytes;
      ordered::settle(offset[n]);
    }
  }
  // Something has to be issued between M0 and the load that takes it.
  template <int n>
  __device__ __forceinline__ void load() {
    ordered::buffer_load_dwordx4_lds(offset[n], buffer);
  }
  // The block after it.
  __device__ __forceinline__ void further() {
    uint64_t base = uint64_t(buffer[1]) << 32 | buffer[0];
    ordered::s_add_u64(base, block_bytes);
    buffer[0] = uint32_t(base);
    buffer[1] = uint32_t(base >> 32);
    buffer[2] = ordered::s_max_i32<0>(ordered::s_sub_i32(buffer[2], block_bytes));
  }
  // All loads of a block to LDS from `to` on, a piece of each wave after the other.
  template <int kApart, bool kFurther = true>
  __device__ __forceinline__ void load_block(uint32_t to) {
    unroll<kLoads>([&]<int n>() {
      ordered::s_add_m0<n * kApart>(to);
      ordered::s_nop<1>();
      load<n>();
    });
    if constexpr (kFurther) further();
  }
};
// 8 rows of K by 8 chunks of 16 bytes: 8 rows of a chunk, then of the next one; neighbours change
// places in every other 8 rows. So 16 lanes that read at once meet different banks, and the chunks
// that a lane reads are at constant distances. Of each 8 rows the first chunks, then the others.
__device__ __forceinline__ uint32_t lane_offset_k(int lane, int piece, int row_bytes) {
  const int rows = piece / 2, half = piece % 2;
  return (8 * rows + lane % 8) * row_bytes + half * 128 + ((lane / 8) ^ (rows % 2)) * 16;
}
// 4 keys of V lie as 4 tiles of 32 columns, 64 bytes of each key: what a transposing read takes.
__device__ __forceinline__ uint32_t lane_offset_v(int lane, int first_row, int row_bytes) {
  return (first_row + lane % 16 / 4) * row_bytes + lane / 16 * 64 + lane % 4 * 16;
}

// ---- LDS to registers
__device__ __forceinline__ uint32_t lane_address_k(int lane) {
  const int key = lane % 32;
  return key / 8 * 2048 + ((lane / 32) ^ (key / 8 % 2)) * 128 + key % 8 * 16;
}
// Of 32 keys: 16 columns from 16 kStep on.
template <int kBytes, int kStep>
__device__ __forceinline__ void read_k(bf16x8& to, uint32_t address) {
  ordered::ds_read_b128<kBytes + kStep / 4 * 1024 + kStep % 4 * 256>(to, address);
}
__device__ __forceinline__ uint32_t lane_address_v(int lane) {
  return lane / 32 * 1024 + lane % 16 / 4 * 64 + lane % 32 / 16 * 32 + lane % 4 * 8;
}
// Of 16 keys from 16 kStep on, a tile of columns: half of it.
template <int kBytes, int kStep, int kTile, int kHalf>
__device__ __forceinline__ void read_v(bf16x8& to, uint32_t address) {
  const u32x2 x =
      ordered::ds_read_b64_tr_b16<kBytes + (4 * kStep + 2 * kHalf) * 1024 + kTile * 256>(address);
  to[2 * kHalf] = x[0];
  to[2 * kHalf + 1] = x[1];
}

// ---- Products
__device__ __forceinline__ void multiply(f32x16& d, bf16x8 a, bf16x8 b) {
  ordered::v_mfma_f32_32x32x16_bf16(d, a, b);
}
__device__ __forceinline__ void multiply_zero(f32x16& d, bf16x8 a, bf16x8 b) {
  ordered::v_mfma_f32_32x32x16_bf16_zero(d, a, b);
}

// ---- Softmax of kScores scores a lane, in an order in which no instruction waits for the one
// before it
enum class Vector { kScale, kExp, kAdd, kPack };
struct VectorStep {
  Vector step;
  int n;
};
// kAhead scores are scaled before the first exponential, so that there is as much to do from the
// start as later.
template <int kScores, int kAhead>
struct VectorSteps {
  VectorStep at[kScores * 3 + kScores / 2] = {};
  int slots_before[kScores * 3 + kScores / 2 + 1] = {};  // of the vector unit
  int count = 0;

  constexpr void add(Vector step, int n) {
    slots_before[count + 1] = slots_before[count] + (step == Vector::kExp ? 2 : 1);
    at[count++] = {step, n};
  }
  constexpr VectorSteps() {
    for (int n = 0; n < kAhead; ++n) add(Vector::kScale, n);
    for (int n = 0; n < kScores + 2; ++n) {
      if (n < kScores) add(Vector::kExp, n);
      if (n + kAhead < kScores) add(Vector::kScale, n + kAhead);
      const int done = n - 2;
      if (done > 0) add(Vector::kAdd, done);  // the first one adds two
      if (done > 0 && done % 2 == 1) add(Vector::kPack, done / 2);
    }
  }
  // How many are before matrix instruction m of `of`.
  constexpr int before(int m, int of) const {
    int n = 0;
    while (n < count && slots_before[n] * of < m * slots_before[count]) ++n;
    return m == of ? count : n;
  }
};

template <int kScores>
struct Softmax {
  static constexpr VectorSteps<kScores, AHEAD> kSteps{};
  float x[kScores];
  float sum;

  // The share of matrix instruction m of kOf. score(n): the nth; done(n, pair): probabilities 2 n
  // and 2 n + 1.
  template <int m, int kOf, class Score, class Done>
  __device__ __forceinline__ void share(float scale, float negative_reference, Score&& score,
                                        Done&& done) {
    unroll_from<kSteps.before(m, kOf), kSteps.before(m + 1, kOf)>([&]<int i>() {
      constexpr VectorStep step = kSteps.at[i];
      constexpr int n = step.n;
      if constexpr (step.step == Vector::kScale)
        x[n] = ordered::v_fma_f32(score.template operator()<n>(), scale, negative_reference);
      if constexpr (step.step == Vector::kExp) x[n] = ordered::v_exp_f32(x[n]);
      if constexpr (step.step == Vector::kAdd && n == 1) sum = ordered::v_add_f32(x[0], x[1]);
      if constexpr (step.step == Vector::kAdd && n > 1) ordered::v_accumulate_f32(sum, x[n]);
      if constexpr (step.step == Vector::kPack)
        done.template operator()<n>(ordered::v_cvt_pk_bf16_f32(x[2 * n], x[2 * n + 1]));
    });
  }
};

// Over both lanes of a row.
__device__ __forceinline__ float row_max(float x, int lane) {
  return v_max_f32(x, __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute(
                                                    4 * (lane ^ 32), __builtin_bit_cast(int, x))));
}
__device__ __forceinline__ float row_sum(float x, int lane) {
  return x + __builtin_bit_cast(
                 float, __builtin_amdgcn_ds_bpermute(4 * (lane ^ 32), __builtin_bit_cast(int, x)));
}

// Matrix instructions of a wave are done and their results may be read.
template <class... T>
__device__ __forceinline__ void products_done(T&... d) {
  ordered::s_nop<16>();
  ordered::s_nop<4>();
  (ordered::settle(d), ...);
}

// ---- Rows of Q, and of O
__device__ __forceinline__ void load_q(bf16x8 (&q)[8], u32x4 buffer, uint32_t offset) {
  unroll<8>([&]<int s>() { ordered::buffer_load_dwordx4<32 * s>(q[s], offset, buffer); });
}
// O of a lane's row: of each tile of 32 columns it has 4 from 8 i + 4 (lane / 32) on. Halves of a
// row exchange, so that each has pieces of 8.
__device__ __forceinline__ void store_o(const f32x16 (&o)[4], float by, BufferResource buffer,
                                        int offset) {
  unroll<8>([&]<int n>() {
    const f32x16& x = o[n / 2];
    const auto pair = [&](int i) {
      const int at = n % 2 * 8 + i;
      return ordered::v_cvt_pk_bf16_f32(x[at] * by, x[at + 1] * by);
    };
    uint32_t a0 = pair(0), a1 = pair(2), b0 = pair(4), b1 = pair(6);
    ordered::s_nop<2>();
    ordered::v_permlane32_swap_b32(a0, b0);
    ordered::v_permlane32_swap_b32(a1, b1);
    ordered::s_nop<2>();
    buffer_store_dwordx4(buffer, offset + 32 * n, u32x4{a0, a1, b0, b1});
  });
}

// ---- Where a workgroup is: x head of q, y tile of rows, z batch entry
struct Place {
  uint64_t q, k, v, o;  // of the first row of the workgroup's tile, and of the first key
  int rows;             // from that row on, 0 and more

  __device__ __forceinline__ Place(const EightArgs& a, int tile_rows) {
    const int head = __builtin_amdgcn_workgroup_id_x(), batch = __builtin_amdgcn_workgroup_id_z();
    const int64_t first = int64_t(__builtin_amdgcn_workgroup_id_y()) * tile_rows;
    const int64_t of_head = head * kColumns * 2, of_kv = head / a.group * kColumns * 2;
    q = a.q + batch * a.q_batch + first * a.q_row + of_head;
    o = a.o + batch * a.o_batch + first * a.o_row + of_head;
    k = a.k + batch * a.kv_batch + of_kv;
    v = a.v + batch * a.kv_batch + of_kv;
    rows = a.rows - int(first);
  }
};
// Of rows of a tensor, those that there are: what is beyond reads as 0 and is not written.
__device__ __forceinline__ uint32_t bytes_of(int rows, int row_bytes) {
  return rows > 0 ? (rows - 1) * row_bytes + kColumns * 2 : 0;
}
