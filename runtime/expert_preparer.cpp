#include "runtime/expert_preparer.h"

#include <algorithm>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "profiler/recorder.h"
#include "profiler/span.h"
#include "runtime/base/error.h"
#include "runtime/base/step_back.h"
#include "runtime/expert_canary.h"

namespace ferry {
namespace {

/// Of a job that does not count any more.
struct GivenUp {};

}  // namespace

const PackedExpert& find_expert(const HeldExperts& next, const HeldExperts& now, int64_t layer, LogicalExpertId expert) {
  for (const HeldExperts* const held : {&next, &now}) {
    const std::vector<LogicalExpertId>& ids = held->experts[static_cast<std::size_t>(layer)];
    const auto found = std::ranges::find(ids, expert);
    if (found != ids.end()) return *held->bank.expert(layer, found - ids.begin());
  }
  throw Error(ErrorCode::kInternal, "expert " + std::to_string(expert.value) + " of layer " + std::to_string(layer) +
                                        ", which this rank does not hold, is to sing");
}

ExpertPreparer::ExpertPreparer(ExpertShelf& shelf, Options options) : shelf_(shelf), options_(std::move(options)) {
  if (options_.works_now) return;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::kResourceExhausted, std::string("no thread to read experts with: ") + error.what());
  }
}

ExpertPreparer::~ExpertPreparer() {
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
    ++number_;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ExpertPreparer::begin(Assignment assignment, std::shared_ptr<const ExpertBank> bank, RankExperts held) {
  const std::scoped_lock lock(mutex_);
  ++number_;
  job_ = Job{std::move(assignment), std::move(bank), std::move(held)};
  done_.reset();
  is_busy_ = true;
  wake_.notify_all();
}

void ExpertPreparer::give_up() {
  const std::scoped_lock lock(mutex_);
  ++number_;
  job_.reset();
  done_.reset();
  is_busy_ = false;
}

bool ExpertPreparer::is_busy() const {
  const std::scoped_lock lock(mutex_);
  return is_busy_;
}

std::optional<ExpertPreparer::Prepared> ExpertPreparer::take() {
  std::unique_lock lock(mutex_);
  if (job_ && options_.works_now && options_.works_now()) work(lock);
  if (done_) is_busy_ = false;
  return std::exchange(done_, std::nullopt);
}

bool ExpertPreparer::is_given_up(uint64_t number) const {
  const std::scoped_lock lock(mutex_);
  return number != number_;
}

void ExpertPreparer::run() {
  recorder().register_thread("prepare");
  step_back();
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return is_over_ || job_; });
    if (is_over_) return;
    work(lock);
  }
}

/// Makes the job ready that is there, without the lock.
void ExpertPreparer::work(std::unique_lock<std::mutex>& lock) {
  const Job job = std::move(*job_);
  job_.reset();
  const uint64_t number = number_;
  lock.unlock();
  std::optional<Prepared> prepared;
  try {
    prepared = prepare(job, number);
  } catch (const GivenUp&) {
  } catch (const std::bad_alloc&) {
    prepared = Prepared{job.assignment, nullptr, {job.assignment.epoch, {}, "out of memory while it read experts"}};
  } catch (const std::exception& error) {
    prepared = Prepared{job.assignment, nullptr, {job.assignment.epoch, {}, error.what()}};
  }
  lock.lock();
  if (number == number_ && prepared) done_ = std::move(prepared);
}

ExpertPreparer::Prepared ExpertPreparer::prepare(const Job& job, uint64_t number) {
  const RankExperts& experts = job.assignment.experts;
  std::vector<int64_t> num_local;
  for (const std::vector<LogicalExpertId>& layer : experts) num_local.push_back(std::ssize(layer));
  const ExpertLoader& loader = shelf_.loader();
  ExpertBank bank(num_local, loader.dims(), loader.weight_type());
  std::vector<std::pair<int64_t, int64_t>> missing;  // layer and place in it
  int64_t bytes = 0;
  for (int64_t layer = 0; layer < std::ssize(experts); ++layer) {
    if (!loader.has_experts(layer)) continue;
    const auto& wanted = experts[static_cast<std::size_t>(layer)];
    const auto& held = job.held[static_cast<std::size_t>(layer)];
    for (int64_t e = 0; e < std::ssize(wanted); ++e) {
      const auto found = std::ranges::find(held, wanted[static_cast<std::size_t>(e)]);
      if (found != held.end()) {
        bank.set(layer, e, job.bank->expert(layer, found - held.begin()));
      } else {
        missing.emplace_back(layer, e);
        if (!shelf_.has(layer, wanted[static_cast<std::size_t>(e)])) bytes += loader.packed_bytes(layer);
      }
    }
  }
  loader.require_memory(bytes, std::to_string(missing.size()) + " more experts");
  const Span span(Zone::kReadExperts, std::ssize(missing));
  for (const auto& [layer, e] : missing) {
    if (is_given_up(number)) throw GivenUp();
    bank.set(layer, e, shelf_.get(layer, experts[static_cast<std::size_t>(layer)][static_cast<std::size_t>(e)]));
  }
  Prepared prepared{.assignment = job.assignment, .bank = nullptr, .preparation = {.epoch = job.assignment.epoch}};
  if (options_.make_backend) sing(job, bank, number, prepared.preparation);
  prepared.bank = std::make_shared<const ExpertBank>(std::move(bank));
  return prepared;
}

/// An expert of a layer that has none, as a dense one among others, sings nothing.
void ExpertPreparer::sing(const Job& job, const ExpertBank& bank, uint64_t number, Preparation& preparation) {
  ThreadPool pool(1);
  std::optional<Backend> backend;
  std::optional<Stream> stream;
  std::optional<ExpertCanary> canary;
  for (int64_t layer = 0; layer < std::ssize(job.assignment.canaries); ++layer) {
    for (const LogicalExpertId expert : job.assignment.canaries[static_cast<std::size_t>(layer)]) {
      if (is_given_up(number)) throw GivenUp();
      if (!canary) {
        backend.emplace(options_.make_backend());
        stream.emplace(*backend, pool);
        canary.emplace(bank.dims(), bank.type(), options_.dtype, *stream);
      }
      const HeldExperts next{job.assignment.experts, bank}, now{job.held, *job.bank};
      preparation.canaries.push_back(shelf_.loader().has_experts(layer) ? canary->sing(find_expert(next, now, layer, expert))
                                                                        : 0);
    }
  }
}

}  // namespace ferry
