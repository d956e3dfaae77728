/* The plot of an object's page: zoom, and the alert of the point that is pointed at.

Without this script the plot is a still image whose marks are links. The script moves the marks that the
server has drawn: it knows where each is from its error bar, or from its triangle if it is a limit.
Bands, kinds and zoom that are chosen without a reload are in the address: bands and kinds as the server
takes them, the zoom behind the #, since only this script knows it. */
"use strict";

/* The axis that was chosen last, flux or mag, is that of the next object too. */
const AXIS = "stampede.axis";
const address = () => new URL(location);
function remembered(value) {
  try { // a browser may forbid it
    if (value) localStorage.setItem(AXIS, value);
    return localStorage.getItem(AXIS);
  } catch {
    return null;
  }
}

const svg = document.querySelector("svg.plot");
const wanted = svg && remembered();
if (wanted && wanted !== svg.dataset.axis && !address().searchParams.has("axis")) {
  const url = address();
  url.searchParams.set("axis", wanted);
  location.replace(url);
}

if (svg && svg.dataset.x) {
  const [LEFT, TOP, RIGHT, BOTTOM] = svg.dataset.frame.split(" ").map(Number);
  const whole = { x: svg.dataset.x.split(" ").map(Number), y: svg.dataset.y.split(" ").map(Number) };
  const MOST = 60; // times enlarged: places have two digits
  const NEAR = 14; // units of the plot
  const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
  const drawn = svg.querySelector(".ticks").innerHTML;
  const groups = [...svg.querySelectorAll("g[clip-path] > g")].map((group) => {
    const bar = group.querySelector(".bar");
    const bars = bar ? [...bar.getAttribute("d").matchAll(/M(\S+) (\S+?)v([^M]+)/g)].map((m) => m.slice(1).map(Number)) : [];
    const marks = [...group.querySelectorAll("circle, path:not(.bar)")].map((mark, i) => {
      const title = mark.querySelector("title");
      const [x, y] = bar ? [bars[i][0], bars[i][1] + bars[i][2] / 2] : corner(mark);
      const text = title.textContent;
      title.remove(); // the browser would show it over the alert
      return { mark, x, y, text, link: mark.closest("a") };
    });
    return { group, bar, bars, marks, stays: group.classList.contains("outside") };
  });
  let view = { x: [...whole.x], y: [...whole.y] };
  let shown = null;
  let timer = 0;
  let writing = 0;
  let changed = null; // the address that is to be written
  const ZOOM = /^#?zoom=([-+.,e0-9]+)$/;

  function corner(mark) {
    const [, x, y] = mark.getAttribute("d").match(/M(\S+) (\S+?)h/);
    return [Number(x) + 4, Number(y) + 3];
  }

  /* The values at the sides of the frame after a zoom by `factor` about a place in the plot. */
  function zoom(factor, x = (LEFT + RIGHT) / 2, y = (TOP + BOTTOM) / 2) {
    const at = { x: (x - LEFT) / (RIGHT - LEFT), y: (y - TOP) / (BOTTOM - TOP) };
    show(between((axis, [first, last]) => {
      const value = first + at[axis] * (last - first);
      return [value + (first - value) / factor, value + (last - value) / factor];
    }));
  }

  function between(change) {
    return { x: change("x", view.x), y: change("y", view.y) };
  }

  function show(wanted) {
    for (const axis of ["x", "y"]) {
      const [first, last] = whole[axis];
      const part = (wanted[axis][1] - wanted[axis][0]) / (last - first);
      if (!(part > 1 / MOST)) return;
      if (part >= 1) wanted[axis] = [first, last];
    }
    view = wanted;
    const move = {};
    for (const [axis, start, stop] of [["x", LEFT, RIGHT], ["y", TOP, BOTTOM]]) {
      const [first, last] = whole[axis];
      const scale = (last - first) / (view[axis][1] - view[axis][0]);
      const shift = start + ((first - view[axis][0]) / (view[axis][1] - view[axis][0])) * (stop - start) - scale * start;
      move[axis] = (place) => scale * place + shift;
    }
    for (const { bar, bars, marks, stays } of groups) {
      for (const one of marks) {
        one.nowX = move.x(one.x);
        one.nowY = stays ? one.y : move.y(one.y); // at the edge
        one.mark.setAttribute("transform", `translate(${one.nowX - one.x} ${one.nowY - one.y})`);
      }
      if (bar) bar.setAttribute("d", bars.map(([x, y, h]) => `M${move.x(x)} ${move.y(y)}V${move.y(y + h)}`).join(""));
    }
    const same = ["x", "y"].every((axis) => view[axis].every((value, i) => value === whole[axis][i]));
    svg.querySelector(".ticks").innerHTML = same ? drawn : ticks();
    const digits = (axis) => view[axis].map((value) => Number(value.toPrecision(9)));
    remember((url) => (url.hash = same ? url.hash.replace(ZOOM, "") : `zoom=${[...digits("x"), ...digits("y")]}`));
  }

  /* Put a change into the address, with the axis whose values it has; browsers limit how often. */
  function remember(change) {
    const url = new URL(changed ?? location);
    change(url);
    if (url.href === new URL(changed ?? location).href) return;
    url.searchParams.set("axis", svg.dataset.axis);
    url.search = url.search.replaceAll("%2C", ",");
    clearTimeout(writing);
    changed = url;
    writing = setTimeout(() => {
      history.replaceState(history.state, "", changed);
      changed = null;
    }, 150);
  }

  /* The zoom that the address names, if it lies within the plot. */
  function zoomed() {
    const ends = (address().hash.match(ZOOM)?.[1] ?? "").split(",").map(Number);
    if (ends.length !== 4 || !ends.every(Number.isFinite)) return view;
    return { x: ends.slice(0, 2), y: ends.slice(2) };
  }

  function ticks() {
    const parts = [];
    const odd = (i) => (i % 2 ? " odd" : ""); // has no text on a narrow screen
    for (const [i, [value, grouped]] of round(...view.x, 8).entries()) {
      const text = grouped.replaceAll(",", ""); // an MJD
      const x = LEFT + ((value - view.x[0]) / (view.x[1] - view.x[0])) * (RIGHT - LEFT);
      parts.push(`<path class="grid" d="M${x} ${TOP}V${BOTTOM}"/><text class="tick${odd(i)}" x="${x}" y="${BOTTOM + 18}" text-anchor="middle">${text}</text>`);
      if (!svg.dataset.folded && Number.isInteger(value) && x > LEFT + 30 && x < RIGHT - 30) {
        const date = new Date((value - 40587) * 864e5);
        const day = `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]} ${date.getUTCFullYear()}`;
        parts.push(`<text class="tick${odd(i)}" x="${x}" y="${TOP - 11}" text-anchor="middle">${day}</text>`);
      }
    }
    for (const [i, [value, text]] of round(...view.y, 6).entries()) {
      const y = TOP + ((value - view.y[0]) / (view.y[1] - view.y[0])) * (BOTTOM - TOP);
      parts.push(`<path class="${value ? "grid" : "zero"}" d="M${LEFT} ${y}H${RIGHT}"/><text class="tick${odd(i)}" x="${LEFT - 8}" y="${y + 4}" text-anchor="end">${text}</text>`);
    }
    return parts.join("");
  }

  /* Values in steps of 1, 2 or 5 times a power of ten, with their text. */
  function round(one, other, most) {
    const [low, high] = [Math.min(one, other), Math.max(one, other)];
    const power = 10 ** Math.floor(Math.log10((high - low) / most));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => (high - low) / n <= most);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    const found = [];
    for (let n = Math.ceil(low / step); n * step <= high; n += 1) {
      const value = Number((n * step).toFixed(digits));
      const text = value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
      found.push([value, text.replace("-", "−")]);
    }
    return found;
  }

  /* Where the pointer is, in the plot's units. */
  function place(event) {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    return [at.x, at.y];
  }

  function nearest(x, y) {
    let best = null;
    let least = NEAR;
    for (const { group, marks } of groups) {
      if (getComputedStyle(group).display === "none") continue;
      for (const one of marks) {
        const away = Math.hypot(one.nowX - x, one.nowY - y) - (one.link ? 2 : 0);
        if (away < least) [best, least] = [one, away];
      }
    }
    return best;
  }

  const peek = document.createElement("div");
  peek.className = "peek";
  peek.textContent = "Point at a mark to see its alert. Drag to enlarge; double-click, or the key 0, shows all.";
  svg.closest(".scroll").after(peek);

  function tell(one) {
    if (!one || one === shown) return;
    shown?.mark.classList.remove("shown");
    shown = one;
    one.mark.classList.add("shown");
    const text = document.createElement("span");
    text.textContent = one.text;
    peek.replaceChildren(text);
    clearTimeout(timer);
    if (!one.link) return;
    const url = new URL(one.link.getAttribute("href"), location);
    const link = document.createElement("a");
    link.href = url;
    text.append(document.createElement("br"), link);
    link.textContent = `alert ${url.pathname.split("/").pop()}`;
    timer = setTimeout(() => peek.append(...pictures(url)), 80); // not of each mark that is passed
  }

  function pictures(url) {
    return ["science", "template", "difference"].map((kind) => {
      const image = new Image();
      image.alt = kind;
      image.src = `/v1${url.pathname}/cutouts/${kind}${url.search}&format=png&size=126`;
      return image;
    });
  }

  const box = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  box.setAttribute("class", "box");
  let from = null;
  let dragged = false;
  svg.addEventListener("pointerdown", (event) => {
    dragged = false;
    if (event.button === 0 && event.pointerType === "mouse") from = place(event);
  });
  svg.addEventListener("dragstart", (event) => event.preventDefault());
  addEventListener("pointermove", (event) => {
    if (!from) {
      if (svg.contains(event.target)) tell(nearest(...place(event)));
      return;
    }
    const to = place(event);
    dragged ||= Math.hypot(to[0] - from[0], to[1] - from[1]) > 6;
    if (!dragged) return;
    svg.append(box);
    for (const [i, side, size, low, high] of [[0, "x", "width", LEFT, RIGHT], [1, "y", "height", TOP, BOTTOM]]) {
      const ends = [from[i], to[i]].map((end) => Math.min(high, Math.max(low, end))).sort((a, b) => a - b);
      box.setAttribute(side, ends[0]);
      box.setAttribute(size, ends[1] - ends[0]);
    }
  });
  addEventListener("pointerup", () => {
    if (from && dragged) {
      const [x, y, width, height] = ["x", "y", "width", "height"].map((name) => Number(box.getAttribute(name)));
      const value = { x: [x, x + width], y: [y, y + height] };
      const frame = { x: [LEFT, RIGHT], y: [TOP, BOTTOM] };
      show(between((axis, [first, last]) => value[axis].map((end) =>
        first + ((end - frame[axis][0]) / (frame[axis][1] - frame[axis][0])) * (last - first))));
    }
    from = null;
    box.remove();
  });
  svg.addEventListener("click", (event) => {
    const tapped = event.pointerType === "touch";
    if (tapped) tell(nearest(...place(event)));
    if (tapped || dragged) event.preventDefault(); // a tap shows the alert; its link is below the plot
  });
  svg.addEventListener("focusin", (event) => {
    tell(groups.flatMap(({ marks }) => marks).find(({ link }) => link && link === event.target));
  });
  svg.addEventListener("dblclick", () => show({ x: [...whole.x], y: [...whole.y] }));
  svg.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.25 : 0.8, ...place(event));
  }, { passive: false });

  const pan = (axis, part) => () => show(between((one, [first, last]) =>
    [first, last].map((end) => end + (one === axis ? part * (last - first) : 0))));
  const keys = {
    "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5),
    0: () => show({ x: [...whole.x], y: [...whole.y] }),
    ArrowLeft: pan("x", -0.2), ArrowRight: pan("x", 0.2), ArrowUp: pan("y", -0.2), ArrowDown: pan("y", 0.2),
  };
  svg.tabIndex = 0;
  svg.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
  const buttons = document.createElement("span");
  buttons.className = "zoom";
  for (const [key, text, name] of [["+", "+", "enlarge"], ["-", "−", "reduce"], ["0", "all", "all of the plot"]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.title = name;
    button.setAttribute("aria-label", name);
    button.onclick = keys[key];
    buttons.append(button);
  }
  const form = document.querySelector("form.choices");
  form.append(buttons);
  form.addEventListener("change", ({ target }) => {
    if (target.type !== "checkbox") return;
    const all = [...form.querySelectorAll(`[name="${target.name}"]`)];
    const chosen = all.filter((one) => one.checked).map((one) => one.value);
    const choose = (url) => {
      if (chosen.length % all.length) url.searchParams.set(target.name, chosen.join(","));
      else url.searchParams.delete(target.name);
    };
    remember(choose);
    for (const link of document.querySelectorAll("main a")) { // to other axes, pages
      if (link.pathname !== location.pathname) continue;
      const url = new URL(link.href);
      choose(url);
      link.href = url;
    }
  });
  for (const link of document.querySelectorAll("a[data-axis]")) {
    link.addEventListener("click", () => remembered(link.dataset.axis));
  }
  show(zoomed());
}
