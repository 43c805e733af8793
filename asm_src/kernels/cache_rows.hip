// What comes before attention of many queries over a cache: new keys and values are appended
// (turned), the keys and values of every sequence copied to rows next to each other, which the
// forward kernels read, queries copied (turned), and where sequences begin written down. Bound by
// the bytes that are moved.
//
// Workgroup: 4 waves; a lane copies 8 columns. Lengths are known to the device alone: workgroups
// have equal shares of the keys of all sequences, 16 of one page at a time. Grid: x =
// num_workgroups, any number; y = 2 where queries are copied, which the second half of it does.
//
//   phase   memory
//   sums    lengths; the first workgroup writes sums, and scales: write_sums
//   find    lengths                     a share of the keys: Share, cache/sequences.h
//   copy    keys and values, new ones   to rows, and to the cache: Rows::copy, cache/rows.h
//
// 56 to 70 vector registers, no LDS, no barrier. The build defines KERNEL (its name), ELEMENT and
// STORED (elements of the cache).
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
