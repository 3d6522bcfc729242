#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>

#include "runtime/server/access.h"
#include "runtime/server/http/http_server.h"
#include "tests/runtime/server/http/call_box.h"
#include "tests/runtime/server/http/raw_client.h"
#include "tests/runtime/server/patient_limits.h"

namespace ferry::test {

/// A server whose calls of /call a test answers from box_, once the test has started server_.
class CalledServerTest : public ::testing::Test {
 protected:
  RawClient client() { return RawClient(server_->address()); }
  /// One that has asked for /call.
  RawClient caller() {
    RawClient one = client();
    one.send("GET /call HTTP/1.1\r\nHost: localhost\r\n\r\n");
    return one;
  }
  std::shared_ptr<HttpStream> stream(HttpStreamHead head = {}) {
    return box_.take()->stream(std::move(head), {end_.callback()});
  }

  HttpServerOptions options_{.address = "127.0.0.1:0", .limits = patient_limits(), .stop_s = kNoLimitSeconds};
  Access access_;
  CallBox box_;
  End end_;
  std::optional<HttpServer> server_;
};

}  // namespace ferry::test
