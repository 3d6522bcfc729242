// Asks for the status every second, while the page is visible and not paused, and shows it.

const PERIOD_MS = 1000, AWAY_PERIOD_MS = 3000, DEADLINE_MS = 5000;
const KEY_NAME = "ferry-key";
const find = (id) => document.getElementById(id);
const history = new History();
const sections = [overview(), phases(), latencies(), memory(), experts(), ranks(), requests()];
let isPaused = false, timer = 0, isAsking = false;

find("view").append(...sections.map(({ section }) => section));

function setState(kind, text) {
  find("state").dataset.kind = kind;
  say(find("state"), text);
}

function show(status) {
  history.add(status);
  const { server } = status;
  say(find("model"), `${server.model}, ${server.dtype}, ${server.ranks === 1 ? "one rank" : `${server.ranks} ranks over ${server.transport}`}`);
  document.title = `Ferry: ${server.model}`;
  setState(server.complaint ? "trouble" : "serving", server.complaint || "Serving");
  find("state").title = `Ferry ${server.version}, up ${age(server.uptime_s)}`;
  for (const section of sections) section.show(history);
  find("view").hidden = false;
  find("view").classList.remove("stale");
}

async function messageOf(answer) {
  try {
    return (await answer.json()).error.message;
  } catch {
    return `the server answers with status ${answer.status}`;
  }
}

/** Milliseconds until the next question. */
async function ask() {
  const key = sessionStorage.getItem(KEY_NAME);
  try {
    const answer = await fetch("status.json", { cache: "no-store", signal: AbortSignal.timeout(DEADLINE_MS), headers: key ? { Authorization: `Bearer ${key}` } : {} });
    find("key-form").hidden = answer.status !== 401;
    if (answer.ok) {
      show(await answer.json());
      return PERIOD_MS;
    }
    setState("trouble", answer.status === 401 ? (key ? "This key is not the server's" : "A key is missing") : await messageOf(answer));
    if (answer.status === 401) return Infinity;
  } catch {
    setState("trouble", "The server is away; it is asked again");
  }
  find("view").classList.add("stale");
  return AWAY_PERIOD_MS;
}

async function tick() {
  clearTimeout(timer);
  if (isAsking || isPaused || document.hidden) return;
  isAsking = true;
  const wait = await ask();
  isAsking = false;
  document.documentElement.dataset.ready = "true";
  if (Number.isFinite(wait)) timer = setTimeout(tick, wait);
}

function setPaused(paused) {
  isPaused = paused;
  find("pause").setAttribute("aria-pressed", String(paused));
  if (paused) setState("waiting", "Paused");
  tick();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  say(find("theme"), theme === "dark" ? "Light" : "Dark");
}

const otherTheme = () => (document.documentElement.dataset.theme === "dark" ? "light" : "dark");
const darkness = matchMedia("(prefers-color-scheme: dark)");
setTheme(darkness.matches ? "dark" : "light");
darkness.addEventListener("change", () => setTheme(darkness.matches ? "dark" : "light"));

find("theme").addEventListener("click", () => setTheme(otherTheme()));
find("pause").addEventListener("click", () => setPaused(!isPaused));
find("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY_NAME, find("key").value);
  find("key").value = "";
  tick();
});
document.addEventListener("keydown", (event) => {
  if (event.target instanceof HTMLInputElement || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "p") setPaused(!isPaused);
  if (event.key === "t") setTheme(otherTheme());
});
document.addEventListener("visibilitychange", tick);
tick();
