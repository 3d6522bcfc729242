#include "runtime/options/media_options.h"

#include <gtest/gtest.h>

#include "tests/runtime/options/command_lines.h"

namespace ferry {
namespace {

using test::accept;
using test::line;
using test::refuse;

TEST(Options, DefaultsOfMedia) {
  for (const char* command : {"serve", "generate"}) {
    const MediaOptions media = accept(line(command, {})).engine.media;
    EXPECT_EQ(4096, media.max_tokens);
    EXPECT_EQ(int64_t{256} << 20, media.cache_bytes);
    EXPECT_EQ(int64_t{1} << 30, media.open_bytes);
    EXPECT_EQ(int64_t{32} << 20, media.limits.max_bytes);
    EXPECT_EQ(int64_t{64} << 20, media.limits.max_pixels);
  }
}

TEST(Options, Media) {
  const MediaOptions media = accept(line("serve", {"--picture-tokens", "77", "--picture-cache", "0B", "--picture-memory",
                                                   "3GiB", "--picture-bytes", "5KiB", "--picture-pixels", "11"}))
                                 .engine.media;
  EXPECT_EQ(77, media.max_tokens);
  EXPECT_EQ(0, media.cache_bytes);
  EXPECT_EQ(int64_t{3} << 30, media.open_bytes);
  EXPECT_EQ(5 << 10, media.limits.max_bytes);
  EXPECT_EQ(11, media.limits.max_pixels);
  EXPECT_EQ(0, accept(line("generate", {"--picture-tokens", "0"})).engine.media.max_tokens);
  refuse(line("serve", {"--picture-tokens", "16385"}), {"--picture-tokens", "'16385'", "0 to 16384"});
  refuse(line("serve", {"--picture-tokens", "-1"}), {"--picture-tokens", "'-1'"});
  refuse(line("serve", {"--picture-cache", "65GiB"}), {"--picture-cache", "'65GiB'", "0B to 64GiB"});
  refuse(line("serve", {"--picture-memory", "1KiB"}), {"--picture-memory", "'1KiB'", "1MiB to 64GiB"});
  refuse(line("serve", {"--picture-bytes", "0"}), {"--picture-bytes", "'0'", "1B to 1GiB"});
  refuse(line("serve", {"--picture-pixels", "0"}), {"--picture-pixels", "'0'"});
}

TEST(Options, OnlyWhoMayBeGivenPicturesWantsTheTower) {
  EXPECT_TRUE(accept(line("serve", {})).engine.media.is_wanted);
  EXPECT_FALSE(accept(line("generate", {})).engine.media.is_wanted);
  EXPECT_TRUE(accept(line("generate", {"--image", "a.png"})).engine.media.is_wanted);
  EXPECT_TRUE(accept(line("generate", {"--video", "frames"})).engine.media.is_wanted);
  EXPECT_FALSE(accept(line("dump", {})).engine.media.is_wanted);
  EXPECT_FALSE(accept(line("bench", {})).engine.media.is_wanted);
  refuse(line("bench", {"--picture-tokens", "64"}), {"--picture-tokens"});
  refuse(line("serve", {"--image", "a.png"}), {"--image"});
}

TEST(Options, MediaOfGenerate) {
  const GenerateOptions generate =
      accept(line("generate", {"--image", "b", "--video", "c", "--image", "a", "--video", "d", "--fps", "29.97"})).generate;
  EXPECT_EQ((std::vector<std::string>{"b", "a"}), generate.images);
  EXPECT_EQ((std::vector<std::string>{"c", "d"}), generate.videos);
  EXPECT_EQ(29.97, generate.fps);
  EXPECT_FALSE(accept(line("generate", {"--video", "c"})).generate.fps.has_value());
  for (const char* fps : {"0", "-1", "nan", "inf", "1e-4", "1e7", "fast"})
    refuse(line("generate", {"--video", "c", "--fps", fps}), {"--fps", "0.001 to 1000000"});
  refuse(line("generate", {"--fps", "2"}), {"--fps", "--video"});
  refuse(line("generate", {"--image", "a", "--fps", "2"}), {"--fps", "--video"});
}

TEST(Options, MediaOfServe) {
  const ServeOptions serve = accept(line("serve", {"--allow-remote-images", "a.example,b.example:8443", "--pictures", "3",
                                                   "--video-frames", "0", "--picture-fetch-seconds", "0.5"}))
                                 .serve;
  EXPECT_EQ("a.example,b.example:8443", serve.remote_images);
  EXPECT_EQ(3, serve.limits.pictures);
  EXPECT_EQ(0, serve.limits.video_frames);
  EXPECT_EQ(0.5, serve.limits.picture_fetch_s);
  EXPECT_TRUE(accept(line("serve", {})).serve.remote_images.empty());
  EXPECT_TRUE(accept(line("serve", {})).serve.limits.picture_hosts.empty());
  refuse(line("serve", {"--pictures", "4097"}), {"--pictures", "'4097'", "0 to 4096"});
  refuse(line("serve", {"--picture-fetch-seconds", "0"}), {"--picture-fetch-seconds", "0.1 to 86400"});
  refuse(line("generate", {"--allow-remote-images", "a.example"}), {"--allow-remote-images"});
}

}  // namespace
}  // namespace ferry
