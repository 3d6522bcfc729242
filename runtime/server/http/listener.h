#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "runtime/base/file_descriptor.h"
#include "runtime/server/http/connection.h"

namespace ferry {

/// Accepts connections of one socket until it is closed, whatever happens: a failure to accept (descriptors or memory have run
/// out) is tried again after a moment, and if it stays a connection that waits is closed. Above the table's limit each new one
/// takes the place of the one that waits longest; where all have answers to come, the new one is closed. Used by the I/O
/// thread, after the constructor.
class HttpListener {
 public:
  /// `socket` listens; see open_listeners.
  HttpListener(boost::asio::io_context& io, FileDescriptor socket, HttpShared& shared);
  HttpListener(const HttpListener&) = delete;
  HttpListener& operator=(const HttpListener&) = delete;

  /// Goes on accepting, if it does not. After an exception on the I/O thread (memory has run out) it is called again.
  void accept();
  void close();

 private:
  void on_wait();
  void take_one();
  void accept_later();

  HttpShared& shared_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer retry_;
  bool is_waiting_ = false;  // for a connection, or for the next try
  int num_failures_ = 0;     // to accept, one after the other
};

}  // namespace ferry
