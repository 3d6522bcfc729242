#include "runtime/server/http/listener.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <utility>

#include "runtime/net/listeners.h"
#include "runtime/server/access.h"
#include "runtime/server/http/guard.h"
#include "tests/runtime/server/http/raw_client.h"
#include "tests/runtime/server/patient_limits.h"
#include "tests/support/few_descriptors.h"

namespace ferry {
namespace {

using test::RawClient;

/// A listener whose I/O thread is the test: nothing happens but in io_.run_one().
class HttpListenerTest : public ::testing::Test {
 protected:
  const ServerLimits limits_ = test::patient_limits();
  const Access access_{};
  const HttpRouter router_{};
  const HttpGate gate_{access_, router_, "127.0.0.1"};
  ConnectionTable table_{limits_.http_connections, limits_.http_total_body_bytes};
  HttpShared shared_{.limits = limits_, .gate = gate_, .table = table_, .dispatch = {}};
  boost::asio::io_context io_{1};
  Listeners listeners_ = open_listeners("test", "127.0.0.1:0");
  HttpListener listener_{io_, std::move(listeners_.sockets.front()), shared_};
};

TEST_F(HttpListenerTest, AcceptsAgainAfterDescriptorsHaveRunOut) {
  RawClient waiting[2];
  listener_.accept();
  {
    const test::NoDescriptors none;
    for (RawClient& one : waiting) one.connect(listeners_.address);
    for (int num_tries = 0; num_tries < 3; ++num_tries) io_.run_one();
    EXPECT_TRUE(table_.empty());
  }
  while (table_.num_connections() < 2) io_.run_one();
}

TEST_F(HttpListenerTest, WithoutDescriptorsAConnectionThatWaitsMakesRoom) {
  RawClient idle(listeners_.address), newcomer;
  listener_.accept();
  while (table_.empty()) io_.run_one();
  const test::NoDescriptors none;
  newcomer.connect(listeners_.address);
  while (!table_.empty()) io_.run_one();
  EXPECT_EQ(idle.read_all(), "") << "the one that waited longest is closed";
  while (table_.empty()) io_.run_one();
}

}  // namespace
}  // namespace ferry
