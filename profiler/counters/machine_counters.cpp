#include "profiler/counters/machine_counters.h"

#include <fcntl.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <system_error>
#include <utility>

#include "profiler/counters/perf_group.h"
#include "profiler/counters/pmu_events.h"
#include "runtime/base/file_descriptor.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;

using Meter = MachineCounters::Meter;
using Meters = std::vector<std::unique_ptr<Meter>>;

constexpr std::size_t kMaxMeters = 256;  // of a kind: controllers of all packages

/// What was found of a counter: meters, or why there are none.
struct Found {
  Meters meters;
  std::string absent;
};

/// A small file of one number or word. Reading it allocates nothing.
class SmallFile {
 public:
  explicit SmallFile(const fs::path& path)
      : file_(open(path.c_str(), O_RDONLY | O_CLOEXEC)), error_(file_.get() < 0 ? errno : 0) {}

  std::optional<uint64_t> read_number() {
    char text[32];
    const ssize_t size = file_.get() < 0 ? -1 : pread(file_.get(), text, sizeof text, 0);
    if (size < 0 && file_.get() >= 0) error_ = errno;
    uint64_t number = 0;
    if (size <= 0 || std::from_chars(text, text + size, number).ec != std::errc()) return std::nullopt;
    return number;
  }
  /// Why it could not be read.
  std::string complaint() const {
    return error_ == 0 ? "not a number" : std::error_code(error_, std::generic_category()).message();
  }

 private:
  FileDescriptor file_;
  int error_;
};

std::string read_word(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word.substr(0, 64);
}

/// A file's number, which starts anew behind `range`; 0: never.
class FileMeter final : public Meter {
 public:
  FileMeter(SmallFile file, uint64_t value, uint64_t range) : file_(std::move(file)), last_(value), range_(range) {}

  uint64_t take() override {
    const std::optional<uint64_t> now = file_.read_number();
    if (!now) return kNotCounted;
    const uint64_t last = std::exchange(last_, *now);
    if (*now >= last) return *now - last;
    return range_ >= last ? range_ - last + *now : kNotCounted;
  }

 private:
  SmallFile file_;
  uint64_t last_;
  const uint64_t range_;
};

/// An event of a whole package, times `scale`.
class PmuMeter final : public Meter {
 public:
  PmuMeter(FileDescriptor file, double scale) : file_(std::move(file)), scale_(scale) { take(); }

  uint64_t take() override {
    uint64_t count = 0;
    if (::read(file_.get(), &count, sizeof count) != sizeof count) return kNotCounted;
    const uint64_t counted = count - std::exchange(last_, count);
    const double value = static_cast<double>(counted) * scale_ + rest_;  // what is no whole unit yet counts next time
    const double whole = std::floor(value);
    rest_ = value - whole;
    return static_cast<uint64_t>(whole);
  }

 private:
  const FileDescriptor file_;
  const double scale_;
  uint64_t last_ = 0;
  double rest_ = 0;
};

std::vector<fs::path> list_folders(const fs::path& folder, const std::string& prefix) {
  std::vector<fs::path> found;
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end && found.size() < kMaxMeters; it.increment(code)) {
    if (it->path().filename().string().starts_with(prefix)) found.push_back(it->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// `scale` of what the event's unit is to the counter's; nothing for a unit that is not known.
std::optional<double> unit_scale(const PmuEvent& event, Counter counter) {
  if (counter != Counter::kSocketMemoryBytes) return event.unit == "Joules" ? std::optional(event.scale * 1e6) : std::nullopt;
  if (event.unit == "MiB") return event.scale * 1048576;
  if (event.unit == "MB") return event.scale * 1e6;
  if (event.unit.empty() && event.scale == 1) return 64;  // a controller's commands: each moves a line
  return std::nullopt;
}

void open_pmu_event(const PmuEvent& event, Counter counter, Found& found) {
  const std::optional<double> scale = unit_scale(event, counter);
  if (!scale || !std::isfinite(*scale) || *scale <= 0) return;
  for (const int cpu : event.cpus) {
    if (found.meters.size() >= kMaxMeters) return;
    perf_event_attr attributes{};
    attributes.size = sizeof attributes;
    attributes.type = event.type;
    attributes.config = event.config;
    attributes.config1 = event.config1;
    constexpr int kAnyProcess = -1, kNoGroup = -1;
    const auto file =
        static_cast<int>(syscall(SYS_perf_event_open, &attributes, kAnyProcess, cpu, kNoGroup, PERF_FLAG_FD_CLOEXEC));
    if (file < 0) {
      found.absent = perf_refusal(errno);
    } else {
      found.meters.push_back(std::make_unique<PmuMeter>(FileDescriptor(file), *scale));
    }
  }
}

/// All of the `names` that the devices of these folders have.
Found find_pmu_meters(const std::vector<fs::path>& devices, std::initializer_list<const char*> names, Counter counter) {
  Found found;
  for (const fs::path& device : devices) {
    for (const char* name : names) {
      if (const std::optional<PmuEvent> event = find_pmu_event(device, name)) open_pmu_event(*event, counter, found);
    }
  }
  return found;
}

/// Powercap's zones of this name: "package-0", "dram". Of several psys, one tells of the platform, the others 0.
Found find_powercap_meters(const fs::path& root, const std::string& name) {
  Found found;
  for (const fs::path& zone : list_folders(root / "sys/class/powercap", "intel-rapl:")) {
    if (!read_word(zone / "name").starts_with(name)) continue;
    SmallFile file(zone / "energy_uj");
    const std::optional<uint64_t> value = file.read_number();
    if (!value) {
      found.absent = "energy_uj: " + file.complaint();
    } else {
      const uint64_t range = SmallFile(zone / "max_energy_range_uj").read_number().value_or(0);
      found.meters.push_back(std::make_unique<FileMeter>(std::move(file), *value, range));
    }
  }
  return found;
}

Found find_resctrl_meters(const fs::path& root) {
  Found found;
  for (const fs::path& domain : list_folders(root / "sys/fs/resctrl/mon_data", "mon_L3_")) {
    SmallFile file(domain / "mbm_total_bytes");
    if (const std::optional<uint64_t> value = file.read_number()) {
      found.meters.push_back(std::make_unique<FileMeter>(std::move(file), *value, 0));
    } else {
      found.absent = "mbm_total_bytes: " + file.complaint();
    }
  }
  return found;
}

}  // namespace

MachineCounters::MachineCounters(const fs::path& root, uint64_t now) : since_(now) {
  find_memory(root);
  find_energy(root);
}

MachineCounters::~MachineCounters() = default;

void MachineCounters::find_memory(const fs::path& root) {
  const fs::path devices = root / "sys/bus/event_source/devices";
  std::vector<fs::path> controllers = list_folders(devices, "uncore_imc_free_running");
  if (controllers.empty()) controllers = list_folders(devices, "uncore_imc");  // both count the same bytes
  for (const fs::path& device : list_folders(devices, "amd_umc")) controllers.push_back(device);
  Found found = find_pmu_meters(
      controllers, {"cas_count_read", "cas_count_write", "data_read", "data_write", "umc_cas_cmd.rd", "umc_cas_cmd.wr"},
      Counter::kSocketMemoryBytes);
  std::string source = "perf uncore";
  if (found.meters.empty()) {
    Found other = find_resctrl_meters(root);
    source = "resctrl";
    if (other.absent.empty()) other.absent = found.absent;
    found = std::move(other);
  }
  if (found.meters.empty()) {
    if (found.absent.empty()) found.absent = "no memory controller's events, no resctrl";
    sources_.push_back({Counter::kSocketMemoryBytes, "", found.absent});
    return;
  }
  sources_.push_back({Counter::kSocketMemoryBytes, source, ""});
  for (std::unique_ptr<Meter>& meter : found.meters) meters_.push_back({Counter::kSocketMemoryBytes, std::move(meter)});
}

/// A domain of RAPL, as powercap and the PMU `power` call it.
struct MachineCounters::EnergyZone {
  Counter counter;
  const char* zone;
  const char* event;
  enum class Missing : uint8_t { kIsTold, kIsUsual } missing;
};

void MachineCounters::find_energy(const fs::path& root) {
  using enum EnergyZone::Missing;
  add_zone(root, {Counter::kPackageEnergy, "package", "energy-pkg", kIsTold});
  add_zone(root, {Counter::kDramEnergy, "dram", "energy-ram", kIsTold});
  add_zone(root, {Counter::kPlatformEnergy, "psys", "energy-psys", kIsUsual});
  // A package's energy has its cores' in it, and AMD's zone of this name is one core's.
  if (!counts(Counter::kPackageEnergy)) add_zone(root, {Counter::kCoreEnergy, "core", "energy-cores", kIsUsual});
}

bool MachineCounters::counts(Counter counter) const {
  return std::ranges::any_of(meters_, [&](const Counted& counted) { return counted.counter == counter; });
}

void MachineCounters::add_zone(const fs::path& root, const EnergyZone& zone) {
  Found found = find_powercap_meters(root, zone.zone);
  std::string source = "powercap";
  if (found.meters.empty()) {
    Found other = find_pmu_meters({root / "sys/bus/event_source/devices/power"}, {zone.event}, zone.counter);
    source = "perf power";
    if (other.absent.empty()) other.absent = found.absent;
    found = std::move(other);
  }
  if (found.meters.empty()) {
    if (found.absent.empty() && zone.missing == EnergyZone::Missing::kIsUsual) return;
    if (found.absent.empty()) found.absent = std::string("no RAPL zone ") + zone.zone;
    sources_.push_back({zone.counter, "", found.absent});
    return;
  }
  sources_.push_back({zone.counter, source, ""});
  for (std::unique_ptr<Meter>& meter : found.meters) meters_.push_back({zone.counter, std::move(meter)});
}

CounterReading MachineCounters::take(uint64_t now) {
  CounterReading reading{.begin = std::exchange(since_, now), .end = now};
  reading.values.fill(kNotCounted);
  CounterValues sums{};
  std::array<bool, kNumCounters> is_known;
  is_known.fill(true);
  for (const Counted& counted : meters_) {
    const auto c = static_cast<std::size_t>(counted.counter);
    const uint64_t value = counted.meter->take();
    is_known[c] = is_known[c] && value != kNotCounted;
    sums[c] += value;
    reading.values[c] = is_known[c] ? sums[c] : kNotCounted;
  }
  return reading;
}

}  // namespace ferry
