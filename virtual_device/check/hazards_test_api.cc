// C entry points through which the tests run the hazard checker over machine code.
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "check/hazards.h"
#include "core/test_machine.h"
#include "isa/decode.h"

#define VDEV_TEST_API extern "C" __attribute__((visibility("default")))

namespace vdev {
namespace {

size_t copy_out(const std::string& text, char* out, size_t out_bytes) {
  if (out_bytes > 0) {
    const size_t n = std::min(text.size(), out_bytes - 1);
    std::memcpy(out, text.data(), n);
    out[n] = '\0';
  }
  return text.size() + 1;
}

// Walks code without executing it: straight on, and from each branch into its target as far as the
// longest wait reaches.
class Walker {
 public:
  explicit Walker(std::span<const u32> words) : report_(code_, 0), without_lanes_(code_, 0) {
    code_.set = &instruction_set(test_processor());
    for (size_t i = 0; i < words.size(); ++i) {
      Inst inst = decode(words.subspan(i), *code_.set).inst;
      if (inst.dst.kind == OperandKind::kAgpr) inst.dst.base = 256;
      for (Operand& source : inst.src)
        if (source.kind == OperandKind::kAgpr) source.base = 256;
      code_.insts.push_back(inst);
    }
    wave_->workgroup = &workgroup_;
  }

  void walk_all() { walk(Hazards(), 0, code_.insts.size(), 0, false); }
  std::vector<Finding> take() {
    // Where no lane is on, a VALU writes no data of a store, and to turn one on takes as long as
    // the rule asks for.
    for (Finding& finding : without_lanes_.take())
      if (finding.message.find("wide-store-valu") == std::string::npos)
        report_.insert(std::move(finding));
    return report_.take();
  }

 private:
  static constexpr int kMaxBranches = 3;  // on one way

  // `no_lanes`: s_cbranch_execz has led here, and no instruction has written EXEC since.
  void walk(Hazards hazards, size_t at, size_t instructions, int branches, bool no_lanes) {
    for (; at < code_.insts.size() && instructions > 0; --instructions) {
      const Inst& inst = code_.insts[at];
      if (!inst.row) {  // padding, data
        hazards.reset();
        ++at;
        continue;
      }
      Report& report = no_lanes ? without_lanes_ : report_;
      hazards.step({*wave_, inst, register_use(inst), nullptr, order_, report});
      if (inst.row->effects & kWritesExec) no_lanes = false;
      at += inst.size;
      const bool jumps = inst.row->effects & kBranch;
      if (jumps && inst.encoding == Format::kSopp && branches < kMaxBranches)
        walk(hazards, at + static_cast<size_t>(i64{inst.imm}), kMaxHazardWait + 1, branches + 1,
             inst.row->name == std::string_view("s_cbranch_execz"));
      if ((jumps && !inst.row->is(Trait::kConditional)) || inst.row->effects & kEndsProgram) {
        if (branches > 0) return;
        hazards.reset();
      }
    }
  }

  DecodedCode code_;
  Report report_, without_lanes_;
  Workgroup workgroup_;
  std::unique_ptr<Wave> wave_ = std::make_unique<Wave>();
  MemoryOrder order_;
};

}  // namespace
}  // namespace vdev

// A line per finding: "kind pc producer_pc where message", with tabs between; pc in bytes from
// words[0].
VDEV_TEST_API size_t vdev_test_hazards(const vdev::u32* words, size_t num_words, char* out,
                                       size_t out_bytes) {
  vdev::Walker walker({words, num_words});
  walker.walk_all();
  std::string text;
  for (const vdev::Finding& f : walker.take())
    text += std::string(vdev::finding_kind_name(f.kind)) + '\t' + std::to_string(f.pc) + '\t' +
            std::to_string(f.producer_pc) + '\t' + f.where + '\t' + f.message + '\n';
  return vdev::copy_out(text, out, out_bytes);
}

// A line per rule: "name producer consumer wait per_pass only_passes from_passes match opcodes
// level sets source", with tabs between.
VDEV_TEST_API size_t vdev_test_hazard_rules(char* out, size_t out_bytes) {
  std::string text;
  for (const vdev::HazardRule& rule : vdev::hazard_rules()) {
    for (const char* field : {rule.name, rule.producer.text, rule.consumer.text})
      text += std::string(field) + '\t';
    for (int field :
         {int{rule.wait}, int{rule.per_pass}, int{rule.only_passes}, int{rule.from_passes},
          static_cast<int>(rule.match), static_cast<int>(rule.opcodes),
          static_cast<int>(rule.level), static_cast<int>(rule.sets)})
      text += std::to_string(field) + '\t';
    text += rule.source;
    text += '\n';
  }
  return vdev::copy_out(text, out, out_bytes);
}
