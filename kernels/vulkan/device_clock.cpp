#include "kernels/vulkan/device_clock.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <tuple>
#include <utility>

#include "profiler/recorder.h"

namespace ferry::vulkan {
namespace {

// Crystals differ by tens of millionths, so that clocks drift apart by tens of microseconds a second; by less where their rate
// is known from two readings.
constexpr double kBracketPeriodNs = 1e9, kReadingPeriodNs = 2e8;
constexpr double kMostDrift = 1e-3;  // of a clock's rate from what its driver says; more is a wrong reading

/// Ticks of the host, fewer than none if `to` is the earlier: of the submissions that are seen to have run at one moment all
/// but the first meet a reading that is younger than that.
double past(uint64_t from, uint64_t to) { return static_cast<double>(static_cast<int64_t>(to - from)); }

uint64_t shift(uint64_t ticks, double by) { return ticks + static_cast<uint64_t>(std::llround(by)); }

}  // namespace

int64_t ticks_between(uint64_t from, uint64_t to, uint32_t bits) {
  const uint32_t unused = 64 - bits;
  return static_cast<int64_t>((to - from) << unused) >> unused;  // sign of the highest bit that counts
}

ClockBrackets::ClockBrackets(double host_per_device, uint32_t bits, uint64_t period)
    : host_per_device_(host_per_device), bits_(bits), period_(period) {}

void ClockBrackets::add(uint64_t submitted, uint64_t begin, uint64_t end, uint64_t seen) {
  const auto bounds = [&] {
    const auto since = [&](uint64_t host) { return static_cast<double>(static_cast<int64_t>(host - since_)); };
    const auto past = [&](uint64_t device) {
      return static_cast<double>(ticks_between(device_, device, bits_)) * host_per_device_;
    };
    return std::pair(since(submitted) - past(begin), since(seen) - past(end));
  };
  if (!is_empty_ && submitted - since_ < period_) {
    const auto [earliest, latest] = bounds();
    earliest_ = std::max(earliest_, earliest);
    latest_ = std::min(latest_, latest);
    if (earliest_ <= latest_) return;  // else the clocks have drifted: the last submission alone counts
  }
  is_empty_ = false;
  since_ = submitted;
  device_ = begin;
  std::tie(earliest_, latest_) = bounds();
  latest_ = std::max(latest_, earliest_);
}

ClockPair ClockBrackets::pair() const { return {device_, shift(since_, (earliest_ + latest_) / 2), (latest_ - earliest_) / 2}; }

DeviceClock::DeviceClock(Device& device)
    : device_(device),
      is_calibrated_(device.traits().has_calibrated_time),
      ns_per_host_tick_(recorder().ticks().ns_per_tick),
      bits_(device.traits().timestamp_bits),
      nominal_rate_(device.traits().timestamp_ns / ns_per_host_tick_),
      host_per_device_(nominal_rate_),
      brackets_(nominal_rate_, bits_, static_cast<uint64_t>(kBracketPeriodNs / ns_per_host_tick_)) {
  if (is_calibrated_) pair_ = read();
}

void DeviceClock::follow(uint64_t submitted, uint64_t begin, uint64_t end, uint64_t seen) {
  brackets_.add(submitted, begin, end, seen);
  if (is_calibrated_) {
    if (past(pair_.host, seen) * ns_per_host_tick_ >= kReadingPeriodNs) advance(read());
    if (agrees(submitted, begin, end, seen)) return;
    restart(read());
    if (agrees(submitted, begin, end, seen)) return;
  }
  restart(brackets_.pair());
}

/// Two readings give the rate as well, unless the clock has wrapped between them or one of them is wrong.
void DeviceClock::advance(ClockPair now) {
  const double host_ticks = past(pair_.host, now.host);
  const double most_device_ticks = std::ldexp(1.0, static_cast<int>(bits_) - 2);
  const auto device_ticks = static_cast<double>(ticks_between(pair_.device, now.device, bits_));
  const bool has_wrapped = host_ticks / nominal_rate_ >= most_device_ticks;
  restart(now);
  if (has_wrapped || device_ticks <= 0) return;
  const double rate = host_ticks / device_ticks;
  if (std::abs(rate / nominal_rate_ - 1) <= kMostDrift) host_per_device_ = rate;
}

void DeviceClock::restart(ClockPair now) {
  pair_ = now;
  host_per_device_ = nominal_rate_;
}

/// Whether a submission lies between when it was handed over and when it was seen to have run, as far as the clock is known.
bool DeviceClock::agrees(uint64_t submitted, uint64_t begin, uint64_t end, uint64_t seen) const {
  const double slack = pair_.bound + kMostDrift * std::abs(past(pair_.host, seen));
  return past(submitted, place(begin)) >= -slack && past(place(end), seen) >= -slack;
}

uint64_t DeviceClock::place(uint64_t timestamp) const {
  return shift(pair_.host, static_cast<double>(ticks_between(pair_.device, timestamp, bits_)) * host_per_device_);
}

/// Of several readings the one with the narrowest bound. The host's clock is read once more, beside the tick counter: how long
/// ago the pair was in the one, it was in the other.
ClockPair DeviceClock::read() const {
  constexpr int kTries = 4;
  const VkTimeDomainEXT host = find_host_clock(device_.physical().handle).value();
  const clockid_t clock = host == VK_TIME_DOMAIN_CLOCK_MONOTONIC_EXT ? CLOCK_MONOTONIC : CLOCK_MONOTONIC_RAW;
  const std::array<VkCalibratedTimestampInfoEXT, 2> infos = {
      {{.sType = VK_STRUCTURE_TYPE_CALIBRATED_TIMESTAMP_INFO_EXT, .timeDomain = VK_TIME_DOMAIN_DEVICE_EXT},
       {.sType = VK_STRUCTURE_TYPE_CALIBRATED_TIMESTAMP_INFO_EXT, .timeDomain = host}}};
  ClockPair best;
  for (int i = 0; i < kTries; ++i) {
    std::array<uint64_t, 2> times{};
    uint64_t deviation_ns = 0;
    check(device_.vk().GetCalibratedTimestamps(device_.handle(), 2, infos.data(), times.data(), &deviation_ns),
          "reading a device's clock");
    timespec now{};
    const uint64_t before = now_ticks();
    clock_gettime(clock, &now);
    const double half_bracket = static_cast<double>(now_ticks() - before) / 2;
    const int64_t now_ns = int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
    const double ago = static_cast<double>(now_ns - static_cast<int64_t>(times[1])) / ns_per_host_tick_;
    const double bound = half_bracket + static_cast<double>(deviation_ns) / ns_per_host_tick_;
    if (i == 0 || bound < best.bound) best = {times[0], shift(before, half_bracket - ago), bound};
  }
  return best;
}

}  // namespace ferry::vulkan
