#include "runtime/schedule/file_records.h"

#include "runtime/base/check.h"

namespace ferry {
namespace {

constexpr double kNewCostShare = 0.125;  // of a measurement in what is known
constexpr double kFileHope = 0.95;       // by which reading seems faster when it was not worth it

void mix_cost(double& known, double measured) { known = known == 0 ? measured : known + kNewCostShare * (measured - known); }

}  // namespace

const char* file_drop_name(FileDrop why) {
  switch (why) {
    case FileDrop::kReplaced: return "replaced";
    case FileDrop::kBusy: return "busy";
    case FileDrop::kWriteFailed: return "write_failed";
    case FileDrop::kUnreadable: return "unreadable";
  }
  return "";
}

FileRecords::FileRecords(int64_t num_pages) : num_pages_(num_pages) {
  FERRY_CHECK_LE(num_pages, std::numeric_limits<int32_t>::max());
}

int32_t FileRecords::add(int64_t num_pages, int32_t unit, bool is_state) {
  FERRY_CHECK_LE(num_pages, num_free());
  if (free_numbers_.empty()) {
    free_numbers_.push_back(end());
    records_.emplace_back();
  }
  const int32_t number = free_numbers_.back();
  free_numbers_.pop_back();
  Record& record = at(number);
  record = {.serial = record.serial, .unit = unit, .is_state = is_state};
  for (int64_t i = 0; i < num_pages; ++i) {
    if (free_pages_.empty()) free_pages_.push_back(num_touched_++);
    record.pages.push_back(free_pages_.back());
    free_pages_.pop_back();
  }
  num_used_ += num_pages;
  return number;
}

void FileRecords::remove(int32_t number) {
  Record& record = at(number);
  FERRY_CHECK(record.unit >= 0) << "record " << number << " is not there";
  num_used_ -= std::ssize(record.pages);
  free_pages_.insert(free_pages_.end(), record.pages.rbegin(), record.pages.rend());
  record = {.serial = record.serial + 1};
  free_numbers_.push_back(number);
}

bool FileRecords::is_there(FileRecordId id) const {
  return id.number >= 0 && id.number < end() && at(id.number).unit >= 0 && at(id.number).serial == id.serial;
}

void FileCosts::add_read(int64_t num_bytes, double seconds) {
  if (num_bytes > 0) mix_cost(byte_s_, seconds / static_cast<double>(num_bytes));
}

void FileCosts::add_prefill(int64_t num_tokens, double seconds) {
  if (num_tokens > 0) mix_cost(token_s_, seconds / static_cast<double>(num_tokens));
}

bool FileCosts::is_worth_reading(int64_t num_bytes, int64_t num_tokens) {
  if (token_s_ == 0 || static_cast<double>(num_bytes) * byte_s_ <= static_cast<double>(num_tokens) * token_s_) return true;
  byte_s_ *= kFileHope;
  return false;
}

}  // namespace ferry
