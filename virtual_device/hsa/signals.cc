#include "hsa/signals.h"

#include <algorithm>
#include <thread>

namespace vdev::hsa {
namespace {

constexpr u64 kSlabBytes = 64 * 1024;
constexpr auto kPoll = std::chrono::microseconds(200);  // for what kernels have changed
constexpr int kSpins = 64;

}  // namespace

bool holds(Condition condition, SignalValue value, SignalValue compared) {
  switch (condition) {
    case kEqual:
      return value == compared;
    case kNotEqual:
      return value != compared;
    case kLess:
      return value < compared;
    case kGreaterOrEqual:
      return value >= compared;
  }
  return false;
}

SignalBlock* Signals::create(SignalValue initial, int64_t kind, u64 queue) {
  std::lock_guard lock(mutex_);
  if (free_.empty()) {
    const auto slab = memory_.allocate(kSlabBytes, MemoryKind::kHost, 0, Fill::kZero);
    if (!slab) return nullptr;
    auto* const first = reinterpret_cast<SignalBlock*>(slab->base);
    for (u64 i = kSlabBytes / sizeof(SignalBlock); i > 0; --i) free_.push_back(first + i - 1);
  }
  SignalBlock* const signal = free_.back();
  free_.pop_back();
  live_.emplace(reinterpret_cast<u64>(signal), next_generation_++);
  *signal = {};
  signal->kind = kind;
  signal->value = initial;
  signal->queue_ptr = queue;
  return signal;
}

bool Signals::destroy(Signal signal) {
  std::lock_guard lock(mutex_);
  if (live_.erase(signal.handle) == 0) return false;
  std::erase_if(watches_, [&](const Watch& w) { return w.signal.handle == signal.handle; });
  free_.push_back(reinterpret_cast<SignalBlock*>(signal.handle));
  return true;
}

SignalBlock* Signals::find(Signal signal) const {
  std::lock_guard lock(mutex_);
  return live_.contains(signal.handle) ? reinterpret_cast<SignalBlock*>(signal.handle) : nullptr;
}

void Signals::store(SignalBlock& signal, SignalValue value) {
  std::atomic_ref(signal.value).store(value);
  notify();
}

void Signals::add(SignalBlock& signal, SignalValue value) {
  std::atomic_ref(signal.value).fetch_add(value);
  notify();
}

void Signals::notify() {
  num_changes_.fetch_add(1);
  if (num_waiting_.load() == 0) return;
  {
    std::lock_guard lock(wait_mutex_);
  }
  changed_.notify_all();
}

// `ready` may take locks that are held where `notify` is called: it is asked without any.
bool Signals::wait(const std::function<bool()>& ready, std::optional<Clock::time_point> deadline) {
  for (int i = 0; i < kSpins; ++i) {
    if (ready()) return true;
    std::this_thread::yield();
  }
  num_waiting_.fetch_add(1);
  bool found = false;
  for (;;) {
    const u64 seen = num_changes_.load();
    found = ready();
    if (found || (deadline && Clock::now() >= *deadline)) break;
    std::unique_lock lock(wait_mutex_);
    if (num_changes_.load() == seen) changed_.wait_for(lock, kPoll);
  }
  num_waiting_.fetch_sub(1);
  return found;
}

SignalValue Signals::wait(const SignalBlock& signal, Condition condition, SignalValue compared,
                          std::optional<Clock::time_point> deadline) {
  SignalValue value = 0;
  wait(
      [&] {
        value = load(signal);
        return holds(condition, value, compared);
      },
      deadline);
  return value;
}

void Signals::on(Signal signal, Condition condition, SignalValue compared, Handler handler,
                 void* argument) {
  std::lock_guard lock(mutex_);
  if (!has_thread_) {
    std::thread([this] { handle(); }).detach();
    has_thread_ = true;
  }
  const auto live = live_.find(signal.handle);
  if (live == live_.end()) return;
  watches_.push_back({signal, condition, compared, handler, argument, live->second});
  has_watches_.notify_one();
  notify();
}

std::optional<Signals::Watch> Signals::take_ready() {
  std::lock_guard lock(mutex_);
  for (auto it = watches_.begin(); it != watches_.end(); ++it) {
    const auto& block = *reinterpret_cast<const SignalBlock*>(it->signal.handle);
    it->value = load(block);
    if (!holds(it->condition, it->value, it->compared)) continue;
    const Watch found = *it;
    watches_.erase(it);
    return found;
  }
  return std::nullopt;
}

void Signals::handle() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      has_watches_.wait(lock, [&] { return !watches_.empty(); });
    }
    std::optional<Watch> found;
    bool none_left = false;
    wait([&] {
      found = take_ready();
      std::lock_guard lock(mutex_);
      none_left = watches_.empty();
      return found.has_value() || none_left;
    });
    if (!found || !found->handler(found->value, found->argument)) continue;
    std::lock_guard lock(mutex_);
    const auto live = live_.find(found->signal.handle);
    if (live != live_.end() && live->second == found->generation) watches_.push_back(*found);
  }
}

}  // namespace vdev::hsa
