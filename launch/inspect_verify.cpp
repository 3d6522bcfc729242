#include "launch/inspect_verify.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/quoting.h"
#include "runtime/checkpoint/folder_check.h"
#include "runtime/cluster/core_policy.h"
#include "runtime/model/config.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;

constexpr int kExitDamaged = 2;

const char* result_name(FileCheck::Result result) {
  switch (result) {
    case FileCheck::Result::kRight: return "right";
    case FileCheck::Result::kUnknown: return "no checksums";
    case FileCheck::Result::kDamaged: return "damaged";
  }
  return "";
}

void print_json(const std::vector<FileCheck>& files, bool has_checksums, const std::string& damage) {
  ordered_json list = ordered_json::array();
  for (const FileCheck& file : files) {
    list.push_back({{"file", file.name},
                    {"bytes", file.bytes},
                    {"tensors", file.tensors},
                    {"result", result_name(file.result)},
                    {"damage", file.damage.empty() ? ordered_json() : ordered_json(file.damage)}});
  }
  const ordered_json all{
      {"has_checksums", has_checksums}, {"damage", damage.empty() ? ordered_json() : ordered_json(damage)}, {"files", list}};
  std::printf("%s\n", all.dump(-1, ' ', false, ordered_json::error_handler_t::replace).c_str());
}

void print_text(const std::vector<FileCheck>& files, bool has_checksums) {
  for (const FileCheck& file : files) {
    const std::string tensors = file.tensors > 0 ? ", " + std::to_string(file.tensors) + " tensors" : "";
    std::printf("%-12s  %s (%lld bytes%s)\n", result_name(file.result), printable(file.name).c_str(),
                static_cast<long long>(file.bytes), tensors.c_str());
  }
  if (!has_checksums) {
    std::printf(
        "The headers, sizes and names fit together. The bytes have no checksums, so nothing tells whether they changed.\n"
        "Folders that `ferry quantize` writes have them.\n");
  }
}

}  // namespace

int run_verify(const Options& options) {
  ThreadPool pool(available_cores());
  const std::vector<FileCheck> files = check_folder(options.engine.model, pool);
  const auto damaged = std::ranges::find(files, FileCheck::Result::kDamaged, &FileCheck::result);
  const std::string damage = damaged == files.end() ? "" : damaged->damage;
  const bool has_checksums =
      std::ranges::none_of(files, [](const FileCheck& file) { return file.result == FileCheck::Result::kUnknown; });
  if (damage.empty()) load_config(options.engine.model);
  if (options.inspect.json)
    print_json(files, has_checksums, damage);
  else
    print_text(files, has_checksums);
  if (damage.empty()) return 0;
  std::fflush(stdout);
  std::fprintf(stderr, "ferry: error: %s\n", one_line(damage).c_str());
  return kExitDamaged;
}

}  // namespace ferry
