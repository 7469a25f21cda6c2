"use strict";
// Request the current page periodically, and update the elements that have changed.
(() => {
  const interval = 1000, intervalAfterFailure = 3000, timeout = 60000;  // milliseconds
  const version = page => page.querySelector("meta[name=version]").content;
  const key = node => node.dataset?.key;
  const corresponds = (one, other) => one?.nodeName === other.nodeName && key(one) === key(other);
  let tag = version(document);

  // Update elements in place instead of replacing them, so that they keep their focus, scroll position and open state.
  function update(old, now) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== now.data) old.data = now.data;
      return;
    }
    for (const {name} of [...old.attributes]) if (name !== "open" && !now.hasAttribute(name)) old.removeAttribute(name);
    for (const {name, value} of now.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const children = [...now.childNodes], keys = new Set(children.map(key));
    children.forEach((child, index) => {
      while (old.childNodes[index] && !keys.has(key(old.childNodes[index]))) old.childNodes[index].remove();
      if (corresponds(old.childNodes[index], child)) update(old.childNodes[index], child);
      else old.insertBefore(document.importNode(child, true), old.childNodes[index] ?? null);
    });
    while (old.childNodes.length > children.length) old.lastChild.remove();
  }

  async function refresh() {
    let pause = interval, reached = true;
    try {
      const options = {headers: {"If-None-Match": `"${tag}"`}, cache: "no-store", signal: AbortSignal.timeout(timeout)};
      const response = await fetch(location.pathname, options);
      if (response.status === 200) {
        const page = new DOMParser().parseFromString(await response.text(), "text/html");
        update(document.body, page.body);
        document.title = page.title;
        tag = version(page);
      } else if (response.status !== 304) {
        reached = false;
      }
    } catch {
      reached = false;
    }
    if (!reached) pause = intervalAfterFailure;
    document.getElementById("lost").hidden = reached;
    setTimeout(refresh, pause);
  }

  setTimeout(refresh, interval);
})();
