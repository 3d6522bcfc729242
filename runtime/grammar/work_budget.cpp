#include "runtime/grammar/work_budget.h"

#include <malloc.h>

#include <ctime>
#include <utility>

#include "runtime/base/check.h"

namespace ferry {
namespace {

constexpr int64_t kAllocationsBetweenChecks = 256;             // of the time
constexpr std::chrono::milliseconds kTimeBetweenQuestions{1};  // of the processor, whether to stop

thread_local constinit WorkBudget* budget_of_thread = nullptr;

std::chrono::nanoseconds thread_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

WorkBudget::WorkBudget(Limits limits) : limits_(std::move(limits)) {
  FERRY_CHECK(budget_of_thread == nullptr);
  budget_of_thread = this;
}

WorkBudget::~WorkBudget() { budget_of_thread = nullptr; }

std::chrono::nanoseconds WorkBudget::time_used() const {
  return begin_ ? thread_time() - *begin_ : std::chrono::nanoseconds(0);
}

void WorkBudget::check(int64_t bytes) {
  if (bytes_held_ + bytes > limits_.bytes) throw BudgetSpent();
  if (++num_allocations_ % kAllocationsBetweenChecks != 0) return;
  if (!begin_) begin_ = thread_time();
  const std::chrono::nanoseconds used = time_used();
  if (used > limits_.time || is_stopped(used)) throw BudgetSpent();
}

bool WorkBudget::is_stopped(std::chrono::nanoseconds used) {
  if (!limits_.is_stopped || used < next_question_) return false;
  next_question_ = used + kTimeBetweenQuestions;
  budget_of_thread = nullptr;  // the answer may allocate
  const bool answer = limits_.is_stopped();
  budget_of_thread = this;
  return answer;
}

}  // namespace ferry

// What the linker's --wrap makes of operator new(size_t), new[](size_t) and the forms of delete for them.
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier): the linker chooses these names
void* __real__Znwm(std::size_t bytes);
void* __real__Znam(std::size_t bytes);
void __real__ZdlPv(void* memory) noexcept;
void __real__ZdaPv(void* memory) noexcept;
void __real__ZdlPvm(void* memory, std::size_t bytes) noexcept;
void __real__ZdaPvm(void* memory, std::size_t bytes) noexcept;
}

namespace ferry {
namespace {

template <class New>
void* allocate_within_budget(New real_new, std::size_t bytes) {
  if (budget_of_thread == nullptr) [[likely]]
    return real_new(bytes);
  budget_of_thread->check(static_cast<int64_t>(bytes));
  void* const memory = real_new(bytes);
  budget_of_thread->hold(static_cast<int64_t>(malloc_usable_size(memory)));
  return memory;
}

void release_from_budget(void* memory) {
  if (budget_of_thread == nullptr || memory == nullptr) [[likely]]
    return;
  budget_of_thread->hold(-static_cast<int64_t>(malloc_usable_size(memory)));
}

}  // namespace
}  // namespace ferry

extern "C" {
void* __wrap__Znwm(std::size_t bytes) { return ferry::allocate_within_budget(__real__Znwm, bytes); }
void* __wrap__Znam(std::size_t bytes) { return ferry::allocate_within_budget(__real__Znam, bytes); }
void __wrap__ZdlPv(void* memory) noexcept {
  ferry::release_from_budget(memory);
  __real__ZdlPv(memory);
}
void __wrap__ZdaPv(void* memory) noexcept {
  ferry::release_from_budget(memory);
  __real__ZdaPv(memory);
}
void __wrap__ZdlPvm(void* memory, std::size_t bytes) noexcept {
  ferry::release_from_budget(memory);
  __real__ZdlPvm(memory, bytes);
}
void __wrap__ZdaPvm(void* memory, std::size_t bytes) noexcept {
  ferry::release_from_budget(memory);
  __real__ZdaPvm(memory, bytes);
}
// NOLINTEND(bugprone-reserved-identifier)
}
