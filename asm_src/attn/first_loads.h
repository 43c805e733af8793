// What a workgroup of attention forward loads first: its arguments; Q, and K and V of the first
// block. Nothing hides a latency of a lone wave: what only depends on the lane is computed while
// the arguments are on their way, addresses between the loads.
#pragma once
#include "attn/pipeline.h"

template <class S>
struct FirstLoads {
  using Loop = Pipeline<S>;
  static constexpr int kN = S::kTilesQ;

  Arguments* from;  // the same in memory
  AttnFwdArgs args;
  Loop loop;
  int wave, lane, row, group;  // of the lane: row l % kTile and keys 4 * (l / kTile) of a tile
  AttnWork work;
  int wave_row;   // of the wave's first row, in the sequence
  int columns;    // of V and O, that there are
  bool padded_q;  // Q and K have fewer columns than the matrix instructions take

  // One trip to memory for what comes first in the struct, whatever the compiler thinks of its
  // registers.
  static __device__ __forceinline__ void fetch(AttnFwdArgs& a) {
    struct Words {
      uint32_t word[sizeof(AttnFwdArgs) / 4];
    };
    Words all = __builtin_bit_cast(Words, a);
    unroll<__builtin_offsetof(AttnFwdArgs, o) / 4>(
        [&]<int n>() { ordered::settle_uniform(all.word[n]); });
    a = __builtin_bit_cast(AttnFwdArgs, all);
  }
  // What needs no arguments, while they are on their way.
  __device__ __forceinline__ const AttnFwdArgs& prepared(uint32_t lds) {
    int id = Lane::in_workgroup();
    ordered::settle(id);  // nothing of the second attempt before the first one
    wave = uniform(id / kWaveLanes);
    ordered::settle_uniform(wave);
    lane = id & (kWaveLanes - 1);
    loop.lane = lane;
    row = lane % S::kTile;
    group = lane / S::kTile;
    set_lds_addresses(lds);
    fetch(args);
    return args;
  }

  // Where waves have blocks of their own behind the diagonal.
  __device__ __forceinline__ AttnWork::Seeing seeing() const {
    if constexpr (S::kDirect)
      return {wave * S::kWaveRows, S::kWaveRows};
    else
      return {0, S::kRows};
  }
  static __device__ __forceinline__ int workgroup(uint32_t id) {
    if constexpr (S::kDirect) ordered::settle_uniform(id);  // likewise
    return id;
  }

  __device__ __forceinline__ FirstLoads(const AttnFwdArgs& arguments, Arguments* again, uint32_t id,
                                        uint32_t lds)
      : from(again),
        args(arguments),
        work(prepared(lds), workgroup(id), S::kRows, S::kHeadDimV, S::kLog2Keys, seeing()) {
    wave_row = work.q_start + wave * S::kWaveRows;
    columns = least(args.head_dim_v - int(work.column), S::kHeadDimV);
    padded_q = args.head_dim < S::kHeadDim;
  }

  // ---- A lane's addresses in LDS and offsets in memory
  static constexpr uint32_t kBehindBlock = 3u << 30;  // an offset that reads as 0
  // 64 dwords of LDS a load of K, at permuted chunks of 16 bytes: attn/lds_layout.h.
  static constexpr int kOfEightRows = S::kLoadsOfEightRows;
  uint32_t row_k[kOfEightRows], column_k[kOfEightRows];  // bytes, of a lane's loads
  uint32_t row_v, column_v;                              // of V, its first row
  __device__ __forceinline__ void set_lds_addresses(uint32_t lds) {
    if constexpr (S::kDirect)
      set_direct_addresses(lds);
    else
      set_staged_addresses(lds);
  }
  __device__ __forceinline__ void set_offsets() {
    if constexpr (S::kDirect)
      set_direct_offsets();
    else
      set_staged_offsets();
  }

  // Of loads of 16 bytes a lane: which row of K or V, and which byte of it.
  struct Place {
    uint32_t row, byte;
  };
  template <int n>
  __device__ __forceinline__ Place place_of() const {
    if constexpr (n < S::kLoadsK) {
      const uint32_t byte = (n * kWaves + wave) * S::kLoadBytes + lane * 16;
      const uint32_t r = byte / S::kRowBytesK, chunk = byte % S::kRowBytesK / 16;
      return {r, (chunk ^ S::permutation(r)) * 16};
    } else {
      const uint32_t byte = ((n - S::kLoadsK) * kWaves + wave) * S::kLoadBytes + lane * 16;
      const uint32_t in_group = byte % S::kGroupV, in_tile = in_group % S::kTileV;
      return {byte / S::kGroupV * 4 + in_tile / S::kTileRowV,
              in_group / S::kTileV * S::kTileRowV + in_tile % S::kTileRowV};
    }
  }
  __device__ __forceinline__ void set_direct_addresses(uint32_t lds) {
    const uint32_t l = lane, r = l % S::kTile, g = l / S::kTile;
    loop.load.m0 = lds + wave * S::kLoadBytes;
    for (int step = 0; step < S::kAddressesK; ++step)
      loop.lds.read_k[step] = lds + r * S::kRowBytesK + ((2 * step + g) ^ S::permutation(r)) * 16;
    loop.lds.read_v = lds + S::kStageBytesV + g * S::kGroupV + l % 16 / 4 * S::kTileRowV +
                      l / 16 % 2 * 32 + l % 4 * 8;
    for (auto& address : loop.lds.read_k) ordered::settle(address);
    ordered::settle(loop.lds.read_v);
    loop.load.flip[0] = 2 * S::kStage;  // the loop begins with the other way round
    loop.load.flip[1] = S::kStage;
  }
  __device__ __forceinline__ void set_direct_offsets() {
    const uint32_t stride_k = 2 * args.k_stride_seq, stride_v = 2 * args.v_stride_seq;
    unroll<S::kLoadsToLds>([&]<int n>() {
      constexpr bool is_v = n >= S::kLoadsK;
      const Place place = place_of<n>();
      const int bytes = 2 * (is_v ? columns : int(args.head_dim));
      const uint32_t offset = place.row * (is_v ? stride_v : stride_k) + place.byte;
      loop.load.offset[n] = int(place.byte) < bytes ? offset : kBehindBlock;
    });
  }

  __device__ __forceinline__ void set_staged_addresses(uint32_t lds) {
    const uint32_t l = lane, r = l % S::kTile, g = l / S::kTile;
    unroll<kOfEightRows>([&]<int n>() {
      const uint32_t byte = (n * kWaves + wave) * S::kLoadBytesK + l * 4;
      row_k[n] = byte / S::kRowBytesK;
      const uint32_t chunk = byte % S::kRowBytesK / 16 ^ (row_k[n] & S::kPermutedK);
      column_k[n] = chunk * 16 + l % 4 * 4;
    });
    loop.load.m0 = lds + wave * S::kPitchK;
    const uint32_t row_byte = r * S::kRowBytesK;
    const uint32_t row_start = row_byte / S::kLoadBytesK * S::kPitchK + row_byte % S::kLoadBytesK;
    for (int octet = 0; octet < S::kAddressesK; ++octet)
      loop.lds.read_k[octet] =
          lds + row_start + ((S::kGroups * octet + g) ^ (r & S::kPermutedK)) * 16;
    // Of V half a wave loads 4 keys: a lane of all columns that lane r of an operand has, or two
    // lanes one half each.
    const uint32_t v_half = l % 32 / S::kTile;
    row_v = 4 * (2 * wave + l / 32);
    column_v = S::columns_of_row(r) * S::kTilesD + v_half * S::kWidthV;
    loop.lds.write_v =
        lds + S::kBaseV + row_v / 4 * S::kGroupV + v_half * (S::kWidthV / 2) * S::kOctetV + r * 16;
    loop.lds.read_v =
        lds + S::kBaseV + g * S::kGroupV + r * 16 + (Loop::Plan::kFlipsFirst ? S::kStageV : 0);
    for (auto& column : column_k) ordered::settle(column);
    for (auto& address : loop.lds.read_k) ordered::settle(address);
    ordered::settle(loop.lds.write_v);
    ordered::settle(loop.lds.read_v);
    ordered::settle(row_v);
    ordered::settle(column_v);
  }

  __device__ __forceinline__ void set_staged_offsets() {
    KvLoads<S>& load = loop.load;
    const uint32_t stride_k = 2 * args.k_stride_seq, stride_v = 2 * args.v_stride_seq;
    unroll<S::kLoadsK>([&]<int n>() {
      constexpr int first = n % kOfEightRows;
      load.offset_k[n] =
          n < kOfEightRows ? row_k[first] * stride_k + column_k[first]
                           : load.offset_k[n < kOfEightRows ? n : n - kOfEightRows] + 8 * stride_k;
    });
    if (__builtin_expect(padded_q, false))
      unroll<S::kLoadsK>([&]<int n>() {
        load.offset_k[n] =
            int(column_k[n % kOfEightRows]) < 2 * args.head_dim ? load.offset_k[n] : kBehindBlock;
      });

    for (int r = 0; r < 4; ++r) load.offset_v[r] = (row_v + r) * stride_v + 2 * column_v;
    if (__builtin_expect(columns < S::kHeadDimV, false))
      for (auto& offset : load.offset_v) offset = int(column_v) < columns ? offset : kBehindBlock;
  }

  // Of the block behind those that are loaded in the first turn of the loop: a wave has 16 rows, a
  // lane 64 bytes of one.
  __device__ __forceinline__ void set_prefetch() {
    KvLoads<S>& load = loop.load;
    const bool of_v = wave % 2;
    const uint32_t stride = of_v ? load.stride_v : load.stride_k;
    const uint64_t base = of_v ? load.base_v : load.base_k;
    const int rows = work.keys - work.first * S::kKeys;
    const uint64_t bytes =
        rows < 1 ? 0 : uint64_t(rows - 1) * stride + 2 * (of_v ? columns : args.head_dim);
    load.lines = raw_descriptor(base, bytes >> 32 ? ~0u : uint32_t(bytes));
    ordered::settle_uniform(load.lines);
    load.step_of_lines = S::kKeys * stride;
    load.offset_of_lines =
        (wave / 2 * 16 + lane / 4) * stride + lane % 4 * 64 + 3 * load.step_of_lines;
    load.unused = 0;
    ordered::settle(load.step_of_lines);
    ordered::settle(load.offset_of_lines);
    ordered::settle(load.unused);
  }

  // ---- The first loads. Addresses by the piece, for the gaps between memory instructions.
  uint64_t q_rows;  // the first row of the workgroup's tile
  static constexpr int kPieces = 4;

  __device__ __forceinline__ uint32_t first_key() const {
    return work.kv_base + work.first * S::kKeys;
  }
  __device__ __forceinline__ void find_k() {
    const uint64_t k =
        args.k + 2 * (work.batch * args.k_stride_batch + work.head_kv * args.k_stride_head +
                      first_key() * args.k_stride_seq);
    KvLoads<S>& load = loop.load;
    load.base_k = uniform64(k);
    load.stride_k = 2 * args.k_stride_seq;
    load.gap_k = load.stride_k - 2 * args.head_dim;
    load.step_k = uint64_t(S::kKeys) * 2 * args.k_stride_seq;
    load.rows_left = uniform(uint32_t(work.keys - work.first * S::kKeys + S::kKeys));
    unroll_from<2, 8>([&]<int n>() { load.template next_block_in_order<n>(); });
    load.buffer_k = raw_descriptor(load.base_k, load.bytes_k);
    ordered::settle_uniform(load.buffer_k);  // its last word is in a register over the loop
  }
  static __device__ __forceinline__ void settle_uniform(uint64_t& x) {
    x = uniform64(x);
    ordered::settle_uniform(x);
  }
  template <int kPiece>
  __device__ __forceinline__ void find_v() {
    KvLoads<S>& load = loop.load;
    uint64_t& v_rows = load.base_v;
    if constexpr (kPiece == 0)
      v_rows = args.v + 2 * (work.column + work.batch * args.v_stride_batch);
    if constexpr (kPiece == 1) v_rows += 2 * work.head_kv * args.v_stride_head;
    if constexpr (kPiece == 2) v_rows += 2 * first_key() * args.v_stride_seq;
    if constexpr (kPiece < 3) settle_uniform(v_rows);
    if constexpr (kPiece == 3) {
      load.stride_v = 2 * args.v_stride_seq;
      load.gap_v = load.stride_v - 2 * columns;
      load.step_v = uint64_t(S::kKeys) * 2 * args.v_stride_seq;
      unroll_from<8, 10>([&]<int n>() { load.template next_block_in_order<n>(); });
      load.bytes_v = ordered::s_max_i32<0>(load.bytes_v);
      load.buffer_v = raw_descriptor(load.base_v, load.bytes_v);
      ordered::settle_uniform(load.buffer_v);
    }
  }
  __device__ __forceinline__ void find_q_rows() {
    q_rows = args.q + 2 * (work.batch * args.q_stride_batch + work.head_q * args.q_stride_head +
                           (work.q_base + work.q_start) * args.q_stride_seq);
    settle_uniform(q_rows);
  }
  static constexpr int kChunks = 16 * S::kGroups;  // bytes of a row that its lanes load at once
  // Q of a tile, straight to where it stays. Rows behind the last one are copies of it.
  template <int t>
  __device__ __forceinline__ const Global<uint8_t>* find_q() {
    const uint64_t stride = 2 * args.q_stride_seq;
    const uint32_t r =
        least(wave_row - work.q_start + t * S::kTile + row, work.rows - 1 - work.q_start);
    return (const Global<uint8_t>*)q_rows + group * 16 + r * stride;
  }
  template <int t, int octet>
  __device__ __forceinline__ void load_q(const Global<uint8_t>* from) {
    if constexpr (t < S::kTilesQAcc)
      ordered::global_load_dwordx4_acc<S::template kAccQuery<t, octet>, octet * kChunks>(from);
    else
      ordered::global_load_dwordx4<octet * kChunks>(loop.operand.q[t - S::kTilesQAcc][octet], from);
  }

  // All of Q, with zeros for the columns that are not there; waits for it.
  __device__ __forceinline__ void load_padded_q() {
    // Rarely called: the compiler would not inline the pieces, and would keep all in memory.
    unroll<kN>([&]<int t>() __attribute__((always_inline)) {
      const auto* from = find_q<t>();
      int first = 8 * group;
      if constexpr (S::kDirect) ordered::settle(first);  // not the conditions of all tiles at once
      unroll<S::kReadsK>([&]<int octet>() __attribute__((always_inline)) {
        const bool there = kChunks / 2 * octet + first < args.head_dim;
        bf16x8 x;
        ordered::global_load_dwordx4<0>(x, from + (there ? kChunks * octet : -16 * group));
        ordered::s_waitcnt<0, ordered::kAnyLgkm>();
        ordered::settle(x);
        for (int i = 0; i < 4; ++i) x[i] = there ? x[i] : 0;
        if constexpr (t < S::kTilesQAcc)
          unroll<4>([&]<int i>() __attribute__((always_inline)) {
            v_accvgpr_write_b32<S::template kAccQuery<t, octet> + i>(x[i]);
          });
        else
          loop.operand.q[t - S::kTilesQAcc][octet] = x;
      });
    });
  }

  template <int t>
  __device__ __forceinline__ void load_tile() {
    const auto* from = find_q<t>();
    unroll<S::kReadsK>([&]<int octet>() { load_q<t, octet>(from); });
  }

  // The first block of keys, behind the first tile of Q; the CU's memory unit takes no more at a
  // time, and Q is most of what is to come.
  // O becomes 0 beside that: an instruction of the matrix unit zeroes 32 registers in 64 clk.
  static constexpr int kZeros = S::kAccO / 32;
  static_assert(S::kAccO % 32 == 0);
  __device__ __forceinline__ void load_first() {
    const bf16x4 zero = ordered::v_mov_b64_zero();
    const auto zero_some = [&]<int kPlace>() {
      constexpr int kPlaces = 6;
      unroll_from<kPlace * kZeros / kPlaces, (kPlace + 1) * kZeros / kPlaces>(
          [&]<int n>() { ordered::v_mfma_f32_32x32x4_2b_zero_acc<32 * n>(zero); });
    };
    find_k();
    constexpr int kLoads = S::kLoadsToLds, kFindV = S::kDirect ? S::kLoadsK : kLoads;
    unroll<kLoads>([&]<int n>() {
      loop.load.template set_m0<n>();
      if constexpr (n < kFindV)
        unroll_from<n * kPieces / kFindV, (n + 1) * kPieces / kFindV>(
            [&]<int piece>() { find_v<piece>(); });
      ordered::s_nop<1>();
      loop.load.template load_k<n>();
      if constexpr (kLoads >= 4 && n % (kLoads / 4) == 0 && n / (kLoads / 4) < 4)
        zero_some.template operator()<n / (kLoads / 4)>();
    });
    static_assert(kLoads >= 4 || S::kDirect);
    if constexpr (kLoads < 4) unroll<4>([&]<int n>() { zero_some.template operator()<n>(); });
    unroll<S::kLoadsV>([&]<int n>() { loop.load.template load_v<n>(); });
    zero_some.template operator()<4>();
    if (__builtin_expect(padded_q, false)) load_padded_q();
    zero_some.template operator()<5>();
  }
};
