// Runs in the page: makes a captured action of every event that an element's
// data-records names, and of scrolling, and hands it to window.capture().
(() => {
  let last = 0;
  let trail = [];
  const rectOf = (el) => {
    const { x, y, width, height } = el.getBoundingClientRect();
    return { x, y, width, height };
  };
  const pathOf = (el) => {
    const parts = [];
    for (; el && el.nodeType === 1; el = el.parentElement) {
      const same = [...(el.parentNode?.children ?? [el])].filter(
        (other) => other.tagName === el.tagName);
      parts.unshift(`${el.tagName.toLowerCase()}[${same.indexOf(el) + 1}]`);
    }
    return "/" + parts.join("/");
  };

  function chainOf(el, point) {
    const name = el.getAttribute("aria-label") ?? el.textContent.trim();
    const role = { BUTTON: "button", SELECT: "combobox" }[el.tagName];
    const chain = [];
    if (el.id) {
      chain.push({ type: "dom_selector", confidence: 0.85, selector: "#" + el.id,
                   metadata: { selectorType: "id", isStable: true } });
    }
    if (role) {
      chain.push({ type: "cdp_semantic", confidence: 0.95,
                   metadata: { role, name, exact: true } });
    }
    chain.push({ type: "cdp_power", confidence: 0.9, metadata: {
      text: role === "button" ? el.textContent.trim() : undefined,
      label: el.getAttribute("aria-label") ?? undefined,
      placeholder: el.getAttribute("placeholder") ?? undefined } });
    if (el.className) {
      chain.push({ type: "css_selector", confidence: 0.75,
                   selector: el.tagName.toLowerCase() + "." + el.className });
    }
    chain.push({ type: "evidence_scoring", confidence: 0.8,
                 metadata: { endpoint: point, mouseTrail: trail } });
    chain.push({ type: "coordinates", confidence: 0.6, metadata: {
      ...point, viewport: { width: innerWidth, height: innerHeight } } });
    return chain;
  }

  function record(eventType, el, value) {
    const timestamp = (last = Math.max(last + 1, Date.now()));
    const box = el ? rectOf(el) : { x: 0, y: 0, width: 0, height: 0 };
    const point = { x: box.x + box.width / 2, y: box.y + box.height / 2 };
    const inShadow = el !== null && el.getRootNode() !== document;
    window.capture({
      id: "action-" + timestamp, timestamp, eventType, value,
      domData: el && {
        selector: el.id ? "#" + el.id : undefined, xpath: inShadow ? undefined : pathOf(el),
        tagName: el.tagName, innerText: el.innerText, boundingRect: box,
        isInShadowDOM: inShadow, ...point },
      visionData: { ocrText: el?.innerText ?? "", confidence: 90,
                    rawOcrResult: { words: Array(500).fill({ text: "word", conf: 88 }) } },
      mouseData: { trail, endpoint: point, duration: 100, pattern: "direct" },
      networkData: { recentRequests: performance.getEntries().map((e) => e.toJSON()) },
      fallbackChain: { primaryStrategy: "dom_selector", recordedAt: timestamp,
                       strategies: el ? chainOf(el, point) : [] },
    });
    trail = [];
  }

  const wants = (e, kind) => {
    const el = e.composedPath()[0];
    return (el.dataset?.records ?? "").split(" ").includes(kind) ? el : null;
  };
  const listen = (event, kind, valueOf = () => undefined, test = () => true) =>
    addEventListener(event, (e) => {
      const el = wants(e, kind);
      if (el && test(e, el)) record(kind, el, valueOf(e, el));
    }, true);

  addEventListener("mousemove", (e) => {
    trail.push({ x: e.clientX, y: e.clientY, timestamp: Date.now() });
    trail = trail.slice(-100);
  }, true);
  listen("click", "click");
  listen("dblclick", "dblclick");
  listen("mouseenter", "hover");
  listen("focus", "focus");
  listen("blur", "blur");
  listen("submit", "submit");
  listen("keydown", "keydown", (e) => e.key, (e) => e.key === "Enter");
  listen("change", "type", (_, el) => el.value);
  listen("change", "select", (_, el) => el.value);
  listen("change", "check", undefined, (_, el) => el.checked);
  listen("change", "uncheck", undefined, (_, el) => !el.checked);
  document.addEventListener("scrollend", () => record("scroll", null, `${scrollX},${scrollY}`));
  addEventListener("DOMContentLoaded", () => record("navigate", null, location.href));
})();
