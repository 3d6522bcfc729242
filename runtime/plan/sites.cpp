#include "runtime/plan/sites.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/base/error.h"

namespace ferry {
namespace {

/// The first `most` hosts that may carry `role`, those that carry nothing else first, of those for which `is_free` says yes.
template <class IsFree>
std::vector<int64_t> take_hosts(const std::vector<const PlanHost*>& hosts, HostRole role, int64_t most, IsFree&& is_free) {
  std::vector<int64_t> taken;
  for (const HostRole kind : {role, HostRole::kAny}) {
    for (int64_t h = 0; h < std::ssize(hosts) && std::ssize(taken) < most; ++h) {
      if (hosts[static_cast<std::size_t>(h)]->role == kind && is_free(h)) taken.push_back(h);
    }
  }
  return taken;
}

std::vector<const PlanHost*> one_by_one(std::span<const PlanHost> hosts, int64_t most_of_kind) {
  std::vector<const PlanHost*> all;
  for (const PlanHost& host : hosts) all.insert(all.end(), static_cast<std::size_t>(std::min(host.count, most_of_kind)), &host);
  return all;
}

int64_t num_used(std::span<const int64_t> ranks_on) {
  return std::ranges::count_if(ranks_on, [](int64_t ranks) { return ranks > 0; });
}

/// The entries around `workers` in a list by workers, and how far it is between them: 0 the first, 1 the second.
template <class Entry>
std::pair<const Entry*, double> entries_around(const std::vector<Entry>& entries, int64_t workers) {
  if (entries.size() == 1 || workers <= entries.front().workers) return {&entries.front(), 0};
  const Entry* far = &entries[1];
  while (far != &entries.back() && far->workers < workers) ++far;
  const Entry* near = far - 1;
  return {near, static_cast<double>(workers - near->workers) / static_cast<double>(far->workers - near->workers)};
}

}  // namespace

int64_t PlanSites::num_coordinator_hosts() const { return num_used(coordinators_on); }
int64_t PlanSites::num_worker_hosts() const { return num_used(workers_on); }
int64_t PlanSites::most_coordinators() const { return *std::ranges::max_element(coordinators_on); }

PlanSites make_sites(std::span<const PlanHost> hosts, int64_t coordinators, int64_t workers) {
  PlanSites sites;
  sites.hosts = one_by_one(hosts, coordinators + workers);
  sites.coordinators_on.assign(sites.hosts.size(), 0);
  sites.workers_on.assign(sites.hosts.size(), 0);
  const auto everything = [](int64_t) { return true; };
  std::vector<int64_t> first = take_hosts(sites.hosts, HostRole::kCoordinators, coordinators, everything);
  if (first.empty()) throw_invalid("plan: no host may carry a coordinator; allowed: one whose role is any or coordinators");
  const auto is_unused = [&](int64_t h) { return std::ranges::find(first, h) == first.end(); };
  std::vector<int64_t> others = take_hosts(sites.hosts, HostRole::kWorkers, workers, is_unused);
  // Of several coordinators the last one leaves its host to the workers if there is none for them.
  if (others.empty() && first.size() > 1 && workers > 0 &&
      sites.hosts[static_cast<std::size_t>(first.back())]->role == HostRole::kAny) {
    others.push_back(first.back());
    first.pop_back();
  }
  if (others.empty()) others = take_hosts(sites.hosts, HostRole::kWorkers, workers, everything);
  if (workers > 0 && others.empty())
    throw_invalid("plan: no host may carry a worker; allowed: one whose role is any or workers");
  for (int64_t c = 0; c < coordinators; ++c)
    sites.coordinator_host.push_back(first[static_cast<std::size_t>(c % std::ssize(first))]);
  for (int64_t w = 0; w < workers; ++w) sites.worker_host.push_back(others[static_cast<std::size_t>(w % std::ssize(others))]);
  for (const int64_t h : sites.coordinator_host) ++sites.coordinators_on[static_cast<std::size_t>(h)];
  for (const int64_t h : sites.worker_host) ++sites.workers_on[static_cast<std::size_t>(h)];
  sites.is_together = workers > 0 && sites.num_worker_hosts() == 1 && sites.num_coordinator_hosts() == 1 &&
                      sites.worker_host.front() == sites.coordinator_host.front();
  return sites;
}

SharedView::SharedView(const PlanHost& host, int64_t workers) : near_(&host.alone), far_(&host.alone) {
  if (workers == 0 || host.together.empty()) return;
  const auto [entry, share] = entries_around(host.together, workers);
  near_ = &entry->costs;
  far_ = share == 0 ? near_ : &(entry + 1)->costs;
  share_ = share;
}

double host_exchange_s(const PlanHost& host, int64_t workers, double num_bytes) {
  if (host.exchange.empty()) return link_exchange_s(host, workers, num_bytes);
  const auto [entry, share] = entries_around(host.exchange, workers);
  const double near = entry->curve.at(num_bytes);
  if (share == 0) return near;
  return std::max(near, near + share * ((entry + 1)->curve.at(num_bytes) - near));
}

double link_exchange_s(const PlanHost& host, int64_t workers, double num_bytes) {
  const double further = static_cast<double>(std::max<int64_t>(0, workers - 1)) * host.message_s;
  const double handled = host.handling.points.empty() ? 0 : host.handling.at(num_bytes) - host.handling.points.front().seconds;
  return host.link_s + further + std::max(num_bytes / host.link_bytes_per_s, handled);
}

}  // namespace ferry
