#include "runtime/server/http/connection_table.h"

#include <utility>
#include <vector>

namespace ferry {

ConnectionTable::Entry ConnectionTable::add(std::weak_ptr<HttpConnection> connection) {
  Line& idle = line(ConnectionPhase::kIdle);
  return idle.insert(idle.end(), {std::move(connection), ConnectionPhase::kIdle});
}

void ConnectionTable::set_phase(Entry entry, ConnectionPhase phase) {
  Line& to = line(phase);
  to.splice(to.end(), line(entry->second), entry);
  entry->second = phase;
}

void ConnectionTable::remove(Entry entry) { line(entry->second).erase(entry); }

int64_t ConnectionTable::num_connections() const {
  int64_t count = 0;
  for (const Line& each : lines_) count += static_cast<int64_t>(each.size());
  return count;
}

/// Closing removes the entry.
bool ConnectionTable::close_oldest(ConnectionPhase phase, const HttpConnection* except) {
  for (const auto& [weak, unused] : line(phase)) {
    const std::shared_ptr<HttpConnection> connection = weak.lock();
    if (connection == nullptr || connection.get() == except) continue;
    connection->close();
    return true;
  }
  return false;
}

bool ConnectionTable::close_longest_waiting() {
  using enum ConnectionPhase;
  return close_oldest(kIdle, nullptr) || close_oldest(kHeader, nullptr) || close_oldest(kBody, nullptr);
}

void ConnectionTable::close_waiting() {
  while (close_longest_waiting()) continue;
}

void ConnectionTable::close_all() {
  close_waiting();
  while (close_oldest(ConnectionPhase::kAnswer, nullptr) || close_oldest(ConnectionPhase::kSend, nullptr)) continue;
}

bool ConnectionTable::take_body_bytes(int64_t num_bytes, Entry self) {
  const std::shared_ptr<HttpConnection> me = self->first.lock();
  while (body_bytes_ + num_bytes > max_body_bytes_) {
    if (!close_oldest(ConnectionPhase::kBody, me.get())) return false;
  }
  body_bytes_ += num_bytes;
  return true;
}

}  // namespace ferry
