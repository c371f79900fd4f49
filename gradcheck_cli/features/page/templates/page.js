"use strict";
(() => {
  const table = document.getElementById("table");
  const form = document.querySelector(".filter");
  if (table && form) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    let order = rows;
    let sort = "";
    let isReady = false;
    const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
    const told = form.querySelector("output");
    const all = form.querySelector("button");
    let most = 500; // rows that are laid out at once: thousands take seconds
    const number = (value) => value.toLocaleString("en");
    const filter = () => {
      const words = form.text.value.toLowerCase().split(/\s+/).filter(Boolean);
      const status = form.status.value;
      const spec = form.spec ? form.spec.value : "";
      let fitting = 0;
      for (const row of order) {
        const fits = (!status || row.dataset.status === status) && (!spec || row.dataset.spec === spec) && words.every((word) => texts.get(row).includes(word));
        fitting += fits;
        row.hidden = !fits || fitting > most;
      }
      const found = fitting === rows.length ? `${number(fitting)} rows` : `${number(fitting)} of ${number(rows.length)} rows`;
      all.hidden = fitting <= most;
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
    heads.forEach((head, column) => {
      head.querySelector("button").addEventListener("click", (event) => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.setAttribute("aria-sort", "none"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        sort = `${column}${down ? "-" : "+"}`;
        const isNumber = event.currentTarget.dataset.kind === "number";
        const key = (row) => {
          const text = row.cells[column].textContent.trim();
          if (!isNumber) return text.toLowerCase();
          if (text === "inf") return Infinity;
          const value = Number.parseFloat(text);
          return Number.isNaN(value) ? -Infinity : value;
        };
        const keyed = rows.map((row) => [key(row), row]);
        keyed.sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0) * (down ? -1 : 1));
        order = keyed.map((one) => one[1]);
        filter();
        body.append(...order);
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
    if (heads[column]) {
      heads[column].setAttribute("aria-sort", way === "-" ? "ascending" : "none");
      heads[column].querySelector("button").click();
    }
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
    if (target && target.tagName === "DETAILS") target.open = true;
  };
  addEventListener("hashchange", open);
  open();
})();
