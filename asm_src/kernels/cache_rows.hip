// Prepares attention of many queries over a KV cache: appends new keys and values (K with rotary
// embedding), copies the keys and values of every sequence to consecutive rows, which the forward
// kernels read, copies the queries (with rotary embedding), and writes where sequences begin. It is
// bound by the bytes that it moves.
//
// Workgroup: 4 waves; a lane copies 8 columns. Only the device knows the lengths: workgroups get
// equal shares of the keys of all sequences, 16 keys of one page at a time. Grid: x =
// num_workgroups, any number; y = 2 if queries are copied, which the second half of the grid does.
//
//   phase   memory                                                         function
//   sums    lengths; the first workgroup writes sums of them, and scales   write_sums
//   find    lengths: the workgroup's share of the keys                     Share, cache/sequences.h
//   copy    keys and values to rows; new ones also to the cache            Rows::copy, cache/rows.h
//
// 56 to 70 vector registers, no LDS, no barrier. The build defines KERNEL (its name), ELEMENT and
// STORED (type of the cache).
#include "cache/rows.h"

namespace {

using Rows = CacheRows<Element::ELEMENT, Stored::STORED>;
static_assert(Rows::kLanes == kWorkgroupLanes);

// Rows before each sequence, those of a wave's 64 sequences after `before`.
__device__ __forceinline__ void write_sums(RowsArguments& args, const Group& group, int first,
                                           int before) {
  auto* q = (Global<int32_t>*)args.q_sums;
  auto* kv = (Global<int32_t>*)args.kv_sums;
  const int b = first + Lane::in_wave(), last = args.batch - 1;
  if (b > last) return;
  if (args.k_rows) {
    const int upto = before + group.rows_upto;
    kv[b] = min_of(upto - group.rows, args.max_rows);
    if (b == last) kv[b + 1] = min_of(upto, args.max_rows);
    if (q) q[b] = b * args.seqlen_q;
    if (q && b == last) q[b + 1] = args.batch * args.seqlen_q;
    return;
  }
  // Of the cache as it lies: its entries begin at whole numbers of rows. Behind each a gap.
  const int of_entry = args.num_pages > 1 ? int(args.k_page / args.k_seq) : 0;
  const int entry = group.own.are_known() ? Rows::entry_of(args, b) : 0;
  const int begin = entry * of_entry + group.own.begin();
  kv[2 * b] = begin;
  kv[2 * b + 1] = begin + group.rows;
  q[2 * b] = b * args.seqlen_q;
  q[2 * b + 1] = (b + 1) * args.seqlen_q;
  if (b == last && last > 0) {
    kv[2 * b + 2] = begin + group.rows;
    q[2 * b + 2] = args.batch * args.seqlen_q;
  }
}

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(Rows::kLanes, 4) KERNEL(CacheRowsArgs) {
  auto& args = *(RowsArguments*)__builtin_amdgcn_kernarg_segment_ptr();
  const uint32_t nth = __builtin_amdgcn_workgroup_id_x();
  if (__builtin_amdgcn_workgroup_id_y() == 1) {
    Rows::copy_queries(args, nth);
    return;
  }
  if (args.scales && nth == 0 && Lane::wave() == 1) Rows::write_scales(anew(args));
  const bool writes_sums = args.kv_sums && nth == 0 && Lane::wave() == 0;
  bool misled = false;
  Share share(args, nth, [&](const Group& group, int first, int before) {
    if (nth == 0) misled |= any_lane(!group.own.are_known());
    if (writes_sums) write_sums(anew(args), group, first, before);
  });
  misled |= args.k_rows && share.all_rows > args.max_rows;
  int first, piece;
  while (share.next(args, first, piece)) misled |= Rows::copy(anew(args), share, first, piece);
  if (misled) report_index();
  if (nth == 0) check_rows_differ(anew(args));
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {kUnitKeys, Rows::kLanes};
