/* Put everything into its place. */

const data = JSON.parse(document.getElementById("data").textContent);

function drawPage() {
  const at = (id) => document.getElementById(id);
  const policies = data.runs.map((run, index) => [run.policy, seriesColour(index), seriesDash(index)]);
  ledgerBars(at("ledger-bars"), data);

  at("usage").append(legend([["productive (goodput)", "var(--p-productive)"], ["busy, but not productive (both together: utilization)", "var(--p-restore)"]]));
  const overTime = linked();
  data.runs.forEach((run, index) => usageChart(at("usage"), run, data.horizon, overTime, index === data.runs.length - 1));

  if (data.runs.length) new Gantt(at("gantt-view"), data);

  const pair = at("wait-cdf").parentElement;
  if (policies.length > 1) pair.prepend(legend(policies));
  shareChart(at("wait-cdf"), "Wait", data.runs, "waits", linked());
  shareChart(at("completion-cdf"), "Submit to end", data.runs, "completions", linked());

  if (at("queues")) {
    const group = linked();
    const names = [...new Set(data.runs.flatMap((run) => run.queues.map((queue) => queue.name)))];
    const known = data.runs.flatMap((run) => run.queues);
    const rules = [["guarantee", ""], ["entitlement", "6 4"], ["limit", "2 3"]].filter(([word]) => known.some((queue) => queue[word] !== null));
    at("queues").append(legend([...policies.map(([name, colour]) => [name, colour, ""]), ...rules.map(([word, dash]) => [word, "var(--muted)", dash])]));
    for (const name of names) queueChart(at("queues"), name, data.runs, data.horizon, data.unit, group);
  }
}

async function download(name) {
  const block = [...document.querySelectorAll("script[data-name]")].find((each) => each.dataset.name === name);
  const packed = Uint8Array.from(atob(block.textContent), (char) => char.charCodeAt(0));
  const text = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).blob();
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

for (const button of document.querySelectorAll("button.csv")) {
  button.addEventListener("click", () => download(button.dataset.csv));
}

drawPage();
