"use strict";
(() => {
  const table = document.getElementById("table");
  if (table) {
    const form = document.querySelector(".filter");
    const body = table.tBodies[0];
    const rows = [...body.rows]; // the worst first
    const ranks = [...new Set(rows.map((row) => row.dataset.status))];
    const blocks = [...document.querySelectorAll("details[id]")];
    const texts = new Map([...rows, ...blocks].map((one) => [one, one.textContent.toLowerCase()]));
    const blockOf = new Map(rows.map((row) => [row, row.querySelector("a")?.hash.slice(1)]));
    const withRow = new Set(blockOf.values());
    let order = rows;
    let sort = "";
    let isReady = false;
    const told = form.querySelector("output");
    const all = form.querySelector("button");
    let most = 500; // rows that are laid out at once: thousands take seconds
    const number = (value) => value.toLocaleString("en");
    const filter = () => {
      const words = form.text.value.toLowerCase().split(/\s+/).filter(Boolean);
      const status = form.status.value;
      const spec = form.spec ? form.spec.value : "";
      const fits = (one) => (!status || one.dataset.status === status) && (!spec || one.dataset.spec.split("\n").includes(spec)) && words.every((word) => texts.get(one).includes(word));
      const fitting = order.filter(fits);
      const shown = new Set(fitting.slice(0, most));
      for (const row of rows) row.hidden = !shown.has(row);
      const named = new Set(fitting.map((row) => blockOf.get(row)));
      for (const block of blocks) block.hidden = withRow.has(block.id) ? !named.has(block.id) : !fits(block);
      const found = fitting.length === rows.length ? `${number(rows.length)} rows` : `${number(fitting.length)} of ${number(rows.length)} rows`;
      all.hidden = fitting.length <= most;
      const view = new URLSearchParams();
      for (const [key, value] of Object.entries({ text: form.text.value, status, spec, sort })) if (value) view.set(key, value);
      // The address keeps the view; a page that is opened from a folder may change only what follows the #.
      if (isReady && (`${view}` || location.hash.startsWith("#?"))) history.replaceState(null, "", `#?${view}`);
      told.textContent = all.hidden ? found : `${found}, the first ${number(most)} shown`;
    };
    all.addEventListener("click", () => {
      most = Infinity;
      filter();
    });
    form.addEventListener("input", filter);
    form.addEventListener("submit", (event) => event.preventDefault());
    const heads = [...table.tHead.rows[0].cells];
    const sortBy = (column, isDown) => {
      const { classList } = heads[column];
      for (const head of heads) head.ariaSort = "none";
      heads[column].ariaSort = isDown ? "descending" : "ascending";
      sort = `${column}${isDown ? "-" : "+"}`;
      const key = (row) => {
        const text = row.cells[column].textContent.trim().toLowerCase();
        if (classList.contains("rank")) return ranks.indexOf(row.dataset.status);
        return !classList.contains("number") ? text : text === "inf" ? Infinity : Number.parseFloat(text);
      };
      const keyed = rows.map((row) => [key(row), row]);
      // What has no number comes last in either order.
      keyed.sort(([a], [b]) => Number.isNaN(a) - Number.isNaN(b) || ((a > b) - (a < b)) * (isDown ? -1 : 1));
      order = keyed.map(([, row]) => row);
      body.append(...order);
    };
    heads.forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const isNumber = head.classList.contains("number"); // the largest first
        sortBy(column, head.ariaSort === "none" ? isNumber : head.ariaSort === "ascending");
        filter();
      });
    });
    const viewed = () => {
      const view = new URLSearchParams(location.hash.startsWith("#?") ? location.hash.slice(2) : "");
      for (const key of ["text", "status", "spec"]) if (form[key] && (isReady || view.has(key))) form[key].value = view.get(key) || "";
      return view;
    };
    const view = viewed();
    addEventListener("hashchange", () => {
      if (!location.hash.startsWith("#?")) return;
      viewed();
      filter();
    });
    const [, column, way] = /^(\d+)([-+ ])$/.exec(view.get("sort") || "") || [];
    if (heads[column]) sortBy(column, way === "-");
    isReady = true;
    filter();
  }
  document.addEventListener("click", async (event) => {
    const button = event.target.closest(".reproduce button");
    if (!button) return;
    const code = button.previousElementSibling;
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
  });
  const open = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.tagName === "DETAILS") {
      target.hidden = false; // by a filter
      target.open = true;
    }
  };
  addEventListener("hashchange", open);
  open();
})();
