#include "runtime/server/http/router.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(HttpRouter, PathsAndTheirLastParts) {
  HttpRouter router;
  for (const char* path : {"/v1/responses", "/v1/responses/*", "/v1/responses/fixed"}) router.add("GET", path, {});
  router.add("POST", "/v1/responses", {});
  const auto found = [&](const char* method, const char* path) {
    const HttpRoute* route = router.find(method, path);
    return route == nullptr ? std::string() : route->path;
  };
  EXPECT_EQ(found("GET", "/v1/responses"), "/v1/responses");
  EXPECT_EQ(found("HEAD", "/v1/responses/abc"), "/v1/responses/*");
  EXPECT_EQ(found("GET", "/v1/responses/fixed"), "/v1/responses/fixed");
  EXPECT_EQ(found("POST", "/v1/responses/abc"), "");
  EXPECT_EQ(found("GET", "/v1/responses/"), "");
  EXPECT_EQ(found("GET", "/v1/responses/a/b"), "");
  EXPECT_EQ(found("GET", "/v1/other"), "");
  EXPECT_EQ(found("GET", ""), "");
  EXPECT_EQ(found("GET", "*"), "");
  EXPECT_EQ(router.methods("/v1/responses"), "GET, HEAD, POST");
  EXPECT_EQ(router.methods("/v1/responses/abc"), "GET, HEAD");
  EXPECT_EQ(router.methods("/"), "");
}

TEST(HttpRouter, PathsOfAnyNumberOfParts) {
  HttpRouter router;
  for (const char* path : {"/v1/models/**", "/v1/models/a/b/**", "/v1/models/*", "/v1/models/a/b/fixed"})
    router.add("GET", path, {});
  const auto found = [&](const char* path) {
    const HttpRoute* route = router.find("GET", path);
    return route == nullptr ? std::string() : route->path;
  };
  EXPECT_EQ(found("/v1/models/a"), "/v1/models/*");
  EXPECT_EQ(found("/v1/models/a/b"), "/v1/models/**");
  EXPECT_EQ(found("/v1/models/a/"), "/v1/models/**");
  EXPECT_EQ(found("/v1/models//"), "/v1/models/**");
  EXPECT_EQ(found("/v1/models/a/b/c/d"), "/v1/models/a/b/**");
  EXPECT_EQ(found("/v1/models/a/b/fixed"), "/v1/models/a/b/fixed");
  EXPECT_EQ(found("/v1/models/"), "");
  EXPECT_EQ(found("/v1/models"), "");
  EXPECT_EQ(found("/v1/other/a"), "");
}

}  // namespace
}  // namespace ferry
