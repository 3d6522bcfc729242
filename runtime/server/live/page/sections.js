// Each function makes one section and returns it with what shows the history in it.

function overview() {
  const section = element("section", { id: "overview", class: "tiles", "aria-label": "Overview" });
  const made = tile("Tokens made a second"), read = tile("Prompt tokens a second"), steps = tile("Steps a second"), open = tile("Requests");
  section.append(made.box, read.box, steps.box, open.box);
  const show = (history) => {
    const { now } = history;
    const generated = (look) => look.tokens.generated, computed = (look) => look.tokens.computed, count = (look) => look.steps.count;
    made.show(figure(history.growth(generated)), `${whole.format(now.tokens.generated)} since the start`, history.line(generated));
    read.show(figure(history.growth(computed)), `${percent(ratio(now.tokens.cached, now.tokens.prompt))} of all prompts came from the cache`,
      history.line(computed));
    steps.show(figure(history.growth(count)), `${seconds(history.growth((look) => look.steps.seconds, count))} each`, history.line(count));
    open.show(`${now.requests.running} of ${now.requests.max_running}`, `${now.requests.waiting} of ${now.requests.max_waiting} wait`,
      history.looks.map((look) => look.requests.running + look.requests.waiting));
  };
  return { section, show };
}

function phases() {
  const section = card("phases", "Steps");
  const window = element("p", { class: "note" });
  const stack = stackOf("Time", ["prefill", "decode", "mixed", "no step"]);
  const table = tableOf("Steps by phase", [["phase", "text"], ["steps", "num"], ["mean", "num"], ["rows a step", "num"], ["sequences a step", "num"]],
    "nothing is recorded (--profile off)");
  const { list, show: showFigures } = figureList();
  section.append(window, stack.box, table.frame, list);
  const show = (history) => {
    const { archive, recent, steps } = history.now;
    say(window, recent.window_s ? `The last ${seconds(recent.window_s)}.` : "Nothing is recorded (--profile off).");
    const shares = ["prefill", "decode", "mixed"].map((name) => ratio(recent.phases.find((phase) => phase.name === name)?.seconds ?? 0, recent.window_s) ?? 0);
    stack.show([...shares, Math.max(0, 1 - total(shares))]);
    table.show(recent.window_s ? recent.phases.map((phase) => [phase.name, whole.format(phase.steps), seconds(ratio(phase.seconds, phase.steps)),
      figure(ratio(phase.rows, phase.steps)), figure(ratio(phase.sequences, phase.steps))]) : []);
    const tried = (look) => look.steps.drafts_tried;
    showFigures([
      ["threads that wait for a core", figure(ratio(recent.core_wait_s, recent.window_s))],
      ["was stopped", percent(ratio(recent.not_running_s, recent.window_s))],
      ...(steps.max_drafts ? [
        ["guesses that were right", percent(history.growth((look) => look.steps.drafts_right, tried))],
        ["tokens a step and sequence", figure(history.growth((look) => look.steps.sequence_tokens, (look) => look.steps.sequence_steps))],
        ["time for guessing", percent(history.growth((look) => look.steps.drafting_seconds, (look) => look.steps.seconds))],
      ] : []),
      ...(archive?.is_on ? [
        ["steps in the archive", `${whole.format(archive.steps)}, ${bytes(archive.bytes)}`],
        ...archive.drift.filter((drift) => drift.median_ratio > 0).map((drift) =>
          [`${drift.phase} beside the day before`, `${figure(drift.median_ratio)}${drift.is_alarmed ? ", slower" : ""}`]),
      ] : []),
    ]);
  };
  return { section, show };
}

function latencies() {
  const section = card("latency", "Latency", "Of the last minute, or since the start where there was nothing in it.");
  const kinds = [["first token", "first_token"], ["between tokens", "between_tokens"], ["in the queue", "queue"], ["whole request", "total"]];
  const table = tableOf("Latency", [["", "text"], ["half within", "num"], ["95 % within", "num"], ["mean", "num"], ["values", "num"]], "none");
  section.append(table.frame);
  const show = (history) => table.show(kinds.map(([name, field]) => {
    const found = history.distribution((look) => look.seconds[field]);
    const count = total(found.counts);
    const within = (share) => {
      const { value, isBound } = quantile(found, share) ?? { value: null };
      return (isBound ? "< " : "") + seconds(value);
    };
    return [name, within(0.5), within(0.95), seconds(ratio(found.sum, count)), whole.format(count)];
  }));
  return { section, show };
}

function memory() {
  const section = card("cache", "Cache");
  const blocks = meterOf("KV cache"), hits = meterOf("Prompt tokens that the prefix cache had");
  const { list, show: showFigures } = figureList();
  section.append(blocks.box, hits.box, list);
  const show = (history) => {
    const { cache, requests } = history.now;
    blocks.show(cache.used_blocks, cache.blocks,
      `${whole.format(cache.used_blocks)} of ${whole.format(cache.blocks)} blocks of ${cache.block_tokens} tokens`);
    hits.box.hidden = !cache.has_prefix_cache;
    hits.show(cache.cached_tokens, cache.query_tokens, percent(ratio(cache.cached_tokens, cache.query_tokens)));
    showFigures([
      ["preemptions", whole.format(requests.preemptions)], ["blocks swapped out", whole.format(cache.swap_blocks)],
      ...(cache.has_prefix_cache ? [
        ["idle cached blocks", whole.format(cache.idle_blocks)], ["snapshots", whole.format(cache.snapshots)],
        ["of snapshots", bytes(cache.snapshot_bytes)], ["units evicted", whole.format(cache.evicted_units)],
        ["snapshots evicted", whole.format(cache.evicted_snapshots)],
      ] : []),
      ...Object.entries(cache.misses).filter(([reason, count]) => count && reason !== "none").map(([reason, count]) => [`no more cached: ${words(reason)}`, whole.format(count)]),
    ]);
  };
  return { section, show };
}

function experts() {
  const section = card("experts", "Experts and transport");
  const balance = meterOf("Balancedness of ranks"), touched = meterOf("Experts of a layer that a step touches");
  const { list, show: showFigures } = figureList();
  section.append(balance.box, touched.box, list);
  const show = (history) => {
    const { experts: { count, balancedness }, server } = history.now;
    section.hidden = !count;
    const each = history.growth((look) => look.experts.touched, (look) => look.experts.layers);
    balance.show(balancedness, 1, figure(balancedness));
    balance.box.hidden = server.ranks === 1;
    touched.show(each ?? 0, count, `${figure(each)} of ${count}`);
    const stepSeconds = (look) => look.steps.seconds;
    showFigures(server.ranks === 1 ? [["held by", "the coordinator, all of them"]] : [
      ["to workers", `${bytes(history.growth((look) => look.transport.bytes_out))}/s`],
      ["from workers", `${bytes(history.growth((look) => look.transport.bytes_in))}/s`],
      ["of steps, waiting for rows", percent(history.growth((look) => look.transport.wait_s, stepSeconds))],
      ["of steps, while nobody computed them", percent(history.growth((look) => look.transport.transport_s, stepSeconds))],
    ]);
  };
  return { section, show };
}

function ranks() {
  const section = card("ranks", "Ranks", "Expert workers as the coordinator sees them, in the last seconds.");
  const table = tableOf("Expert workers", [["rank", "num"], ["share of rows", "num"], ["rows a layer", "num"], ["out", "num"], ["back", "num"],
    ["round trip", "num"], ["coordinator waits", "num"], ["state", "text"], ["host", "text"], ["address", "text"], ["why", "text"]], "nothing travelled");
  section.append(table.frame);
  const show = ({ now: { ranks: all, recent } }) => {
    section.hidden = !all.length;
    const rows = total(all.map((rank) => rank.rows));
    table.show(all.map((rank) => [`${rank.rank}`, percent(ratio(rank.rows, rows)), figure(ratio(rank.rows, rank.exchanges)),
      `${bytes(ratio(rank.bytes_out, recent.window_s))}/s`, `${bytes(ratio(rank.bytes_in, recent.window_s))}/s`,
      seconds(ratio(rank.round_trip_s, rank.exchanges)), percent(ratio(rank.wait_s, recent.window_s)),
      rank.lost ? "dead" : rank.state, rank.host, rank.address, rank.reason]));
  };
  return { section, show };
}

function requests() {
  const section = card("requests", "Requests");
  const { list, show: showFigures } = figureList();
  const table = tableOf("Open requests, the oldest first", [["number", "num"], ["state", "text"], ["age", "num"], ["prompt", "num"], ["cached", "num"],
    ["computed", "num"], ["made", "num"]], "none is open");
  section.append(list, table.frame);
  const show = ({ now: { requests: { by_state, finished, rejected, oldest } } }) => {
    showFigures([...Object.entries(by_state).map(([state, count]) => [words(state), whole.format(count)]),
      ...Object.entries(finished).map(([reason, count]) => [`ended: ${reason}`, whole.format(count)]), ["refused, queue full", whole.format(rejected)]]);
    table.show(oldest.map((r) => [`${r.number}`, words(r.state), age(r.age_s), ...[r.prompt_tokens, r.cached_tokens, r.computed_tokens, r.generated_tokens].map((n) => whole.format(n))]));
  };
  return { section, show };
}
