#include "profiler/stacks/stack_sampler.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "profiler/span.h"
#include "profiler/stacks/unwinder.h"
#include "profiler/tick_clock.h"
#include "runtime/base/sanitizers.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

#if defined(FERRY_THREAD_SANITIZER)
#define FERRY_NO_STACKS "ThreadSanitizer puts signals off"
#elif !defined(__x86_64__) && !defined(__aarch64__)
#define FERRY_NO_STACKS "the registers of this processor are not known"
#endif

namespace ferry {
namespace {

constexpr int kSignal = SIGPROF;

thread_local constinit std::atomic<StackRing*> own_ring{nullptr};

#if defined(__x86_64__)
/// In the order of their numbers in DWARF (System V ABI, AMD64 supplement, fig. 3.36).
constexpr int kRegisters[] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8,
                              REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
#endif

void copy_registers(const mcontext_t& machine, RawStack& stack) {
#if defined(__x86_64__)
  for (std::size_t i = 0; i < std::size(kRegisters); ++i)
    stack.registers[i] = static_cast<uint64_t>(machine.gregs[kRegisters[i]]);
  stack.pc = static_cast<uint64_t>(machine.gregs[REG_RIP]);
  stack.sp = static_cast<uint64_t>(machine.gregs[REG_RSP]);
#elif defined(__aarch64__)
  for (std::size_t i = 0; i < std::size(machine.regs); ++i) stack.registers[i] = machine.regs[i];
  stack.registers[std::size(machine.regs)] = stack.sp = machine.sp;
  stack.pc = machine.pc;
#else
  static_cast<void>(machine);
  static_cast<void>(stack);
#endif
}

/// The stack from its pointer up to `top`, as much as there is room for: all of it is the thread's, and mapped.
__attribute__((no_sanitize("address"))) void copy_stack(uintptr_t top, RawStack& stack) {
  stack.num_words = 0;
  if (stack.sp >= top || stack.sp % sizeof(uint64_t) != 0) return;  // it runs on another stack
  const uint64_t count = std::min<uint64_t>((top - stack.sp) / sizeof(uint64_t), stack.words.size());
  const auto* words = reinterpret_cast<const volatile uint64_t*>(stack.sp);
  for (uint64_t i = 0; i < count; ++i) stack.words[i] = words[i];
  stack.num_words = static_cast<uint32_t>(count);
}

/// The signal is blocked meanwhile, so that a ring has one writer.
void handle_signal(int, siginfo_t* info, void* context) {
  if (info->si_code != SI_TIMER) return;
  StackRing* ring = own_ring.load(std::memory_order_acquire);
  if (ring == nullptr) return;
  RawStack* stack = ring->next();
  if (stack == nullptr) return;
  const int error = errno;
  const std::optional<Zone> zone = open_zone();
  stack->ticks = now_ticks();
  stack->is_in_zone = zone.has_value();
  stack->zone = zone.value_or(Zone::kStep);
  stack->periods = static_cast<uint16_t>(1 + std::clamp(info->si_overrun, 0, INT16_MAX));
  copy_registers(static_cast<const ucontext_t*>(context)->uc_mcontext, *stack);
  copy_stack(ring->stack_top(), *stack);
  ring->publish();
  errno = error;
}

/// Empty, or why signals cannot be had. The handler stays: a timer's last signal may come when it is long gone.
std::string install_handler() {
#ifdef FERRY_NO_STACKS
  return FERRY_NO_STACKS;
#else
  struct sigaction old {};
  if (sigaction(kSignal, nullptr, &old) != 0) return std::system_category().message(errno);
  if ((old.sa_flags & SA_SIGINFO) != 0 && old.sa_sigaction == handle_signal) return {};
  if ((old.sa_flags & SA_SIGINFO) != 0 || (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN))
    return "somebody else handles SIGPROF";
  struct sigaction ours {};
  ours.sa_sigaction = handle_signal;
  ours.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  if (sigaction(kSignal, &ours, nullptr) != 0) return std::system_category().message(errno);
  return {};
#endif
}

/// The clock of another thread's CPU time, as the kernel numbers them (pthread_getcpuclockid(3) does the same).
clockid_t cpu_clock_of(int64_t tid) {
  constexpr unsigned kPerThread = 4, kScheduled = 2;
  return static_cast<clockid_t>(~static_cast<unsigned>(tid) << 3 | kPerThread | kScheduled);
}

/// Interrupts the thread whenever it has run for a period.
class ThreadTimer {
 public:
  explicit ThreadTimer(int64_t tid) {
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = kSignal;
    event.sigev_notify_thread_id = static_cast<pid_t>(tid);
    constexpr timespec kPeriod{0, StackSampler::kPeriodNs};
    const itimerspec times{kPeriod, kPeriod};
    has_timer_ = timer_create(cpu_clock_of(tid), &event, &timer_) == 0;
    if (!has_timer_ || timer_settime(timer_, 0, &times, nullptr) != 0) error_ = errno;
  }
  ThreadTimer(ThreadTimer&& other) noexcept
      : timer_(other.timer_), has_timer_(std::exchange(other.has_timer_, false)), error_(other.error_) {}
  ThreadTimer& operator=(ThreadTimer&& other) noexcept {
    std::swap(timer_, other.timer_);
    std::swap(has_timer_, other.has_timer_);
    std::swap(error_, other.error_);
    return *this;
  }
  ~ThreadTimer() {
    if (has_timer_) timer_delete(timer_);
  }
  int error() const { return error_; }

 private:
  timer_t timer_{};
  bool has_timer_ = false;
  int error_ = 0;
};

}  // namespace

struct StackSampler::Sampled {
  ThreadStack* thread;
  uint64_t num_lost;  // of its ring, before
  ThreadTimer timer;
};

/// Samples with their stacks as addresses; names come at the end, when nothing is timed.
class StackSampler::Table {
 public:
  const std::string& absent() const { return unwinder_.absent(); }

  void add(int64_t tid, const RawStack& raw) try {
    if (samples_.size() == kMaxStackSamples) return lose(1);
    std::vector<uintptr_t> calls = unwinder_.find_calls(raw);
    if (stacks_.size() == kMaxStacks && !stacks_.contains(calls)) return lose(1);
    const auto stack = stacks_.try_emplace(std::move(calls), static_cast<uint32_t>(stacks_.size())).first->second;
    samples_.push_back({.ticks = raw.ticks,
                        .stack = stack,
                        .tid = static_cast<int32_t>(tid),
                        .zone = raw.zone,
                        .is_in_zone = raw.is_in_zone,
                        .periods = raw.periods});
  } catch (const std::bad_alloc&) {
    lose(1);
  }
  void lose(uint64_t count) { num_lost_ += count; }

  StackCapture name();

 private:
  Unwinder unwinder_;
  std::map<std::vector<uintptr_t>, uint32_t> stacks_;  // calls, and the number that samples have
  std::vector<StackSample> samples_;
  uint64_t num_lost_ = 0;
};

/// Addresses of the same function become one frame, and stacks of the same functions one stack.
StackCapture StackSampler::Table::name() {
  StackCapture named{.period_ns = kPeriodNs, .num_lost = num_lost_};
  std::map<uintptr_t, uint32_t> frame_at;
  std::map<std::pair<std::string, std::string>, uint32_t> frames;
  const auto frame_of = [&](uintptr_t address) {
    const auto [at, is_new] = frame_at.try_emplace(address, 0);
    if (!is_new) return at->second;
    StackFrame frame = unwinder_.find_function(address);
    if (frames.size() + 1 >= kMaxStackFrames) frame = {"(more functions)", ""};
    const auto [known, is_first] = frames.try_emplace({frame.function, frame.module}, static_cast<uint32_t>(frames.size()));
    if (is_first) named.frames.push_back(std::move(frame));
    return at->second = known->second;
  };
  std::map<std::vector<uint32_t>, uint32_t> stacks;
  std::vector<uint32_t> stack_of(stacks_.size());
  for (const auto& [calls, raw] : stacks_) {
    std::vector<uint32_t> stack;
    for (const uintptr_t call : calls) stack.push_back(frame_of(call));
    const auto [known, is_first] = stacks.try_emplace(stack, static_cast<uint32_t>(stacks.size()));
    if (is_first) named.stacks.push_back(std::move(stack));
    stack_of[raw] = known->second;
  }
  named.samples = std::move(samples_);
  for (StackSample& sample : named.samples) sample.stack = stack_of[sample.stack];
  return named;
}

ThreadStack own_stack() {
  ThreadStack own{.tid = gettid(), .slot = &own_ring, .ring = nullptr};
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return own;
  void* lowest = nullptr;
  std::size_t bytes = 0;
  if (pthread_attr_getstack(&attributes, &lowest, &bytes) == 0) own.top = reinterpret_cast<uintptr_t>(lowest) + bytes;
  pthread_attr_destroy(&attributes);
  return own;
}

StackSampler::StackSampler() : absent_(install_handler()), table_(std::make_unique<Table>()) {
  if (absent_.empty()) absent_ = table_->absent();
}

StackSampler::~StackSampler() = default;

void StackSampler::add(ThreadStack& thread) {
  if (!absent_.empty() || thread.top == 0) return;
  if (std::ranges::find(threads_, &thread, &Sampled::thread) != threads_.end()) return;
  if (thread.ring == nullptr) {
    thread.ring = std::make_unique<StackRing>(thread.top);
    thread.slot->store(thread.ring.get(), std::memory_order_release);
  }
  thread.ring->drain([](const RawStack&) {});  // of an earlier time
  ThreadTimer timer(thread.tid);
  if (timer.error() != 0) {
    absent_ = "no timer for thread " + std::to_string(thread.tid) + ": " + std::system_category().message(timer.error());
    return;
  }
  threads_.push_back({&thread, thread.ring->num_lost(), std::move(timer)});
}

void StackSampler::remove(ThreadStack& thread) {
  const auto sampled = std::ranges::find(threads_, &thread, &Sampled::thread);
  if (sampled == threads_.end()) return;
  take(*sampled);
  threads_.erase(sampled);
}

void StackSampler::take(Sampled& sampled) {
  StackRing& ring = *sampled.thread->ring;
  ring.drain([&](const RawStack& raw) { table_->add(sampled.thread->tid, raw); });
  const uint64_t num_lost = ring.num_lost();
  table_->lose(num_lost - std::exchange(sampled.num_lost, num_lost));
}

void StackSampler::drain() {
  for (Sampled& sampled : threads_) take(sampled);
}

StackCapture StackSampler::finish() {
  drain();
  threads_.clear();
  StackCapture found = table_->name();
  found.absent = absent_;
  return found;
}

}  // namespace ferry
