#include "runtime/options/media_options.h"

#include <CLI/CLI.hpp>

#include "runtime/options/option_checks.h"

namespace ferry {

void add_media_options(CLI::App& app, MediaOptions& o) {
  constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;
  app.add_option(
         "--picture-tokens", o.max_tokens,
         "most tokens of a picture, or of a moment of a video: larger ones are scaled down; 0: no pictures, and no vision "
         "tower in memory; default 4096")
      ->check(integer_in(0, 16384))
      ->group(kMediaGroup);
  app.add_option("--picture-cache", o.cache_bytes, "for what pictures that come again became; 0B: none; default 256MiB")
      ->transform(size_in(0, 64 * kGiB, "0B to 64GiB"))
      ->group(kMediaGroup);
  app.add_option("--picture-memory", o.open_bytes, "for the pixels of all requests together; default 1GiB")
      ->transform(size_in(kMiB, 64 * kGiB, "1MiB to 64GiB"))
      ->group(kMediaGroup);
  app.add_option("--picture-bytes", o.limits.max_bytes, "bytes of one file, at most; default 32MiB")
      ->transform(size_in(1, kGiB, "1B to 1GiB"))
      ->group(kMediaGroup);
  app.add_option("--picture-pixels", o.limits.max_pixels, "pixels of one file, at most; default 67108864")
      ->check(integer_in(1, int64_t{1} << 30))
      ->group(kMediaGroup);
}

}  // namespace ferry
