"use strict";
// Asks again and again for the page that it stands on, and changes in it what has changed there.
(() => {
  const every = 1000, afterFailure = 3000, patience = 60000;
  const version = page => page.querySelector("meta[name=version]").content;
  const key = node => node.dataset?.key;
  const alike = (one, other) => one?.nodeName === other.nodeName && key(one) === key(other);
  let tag = version(document);

  // What stays keeps its focus, its place and what the reader has opened.
  function become(old, now) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== now.data) old.data = now.data;
      return;
    }
    for (const {name} of [...old.attributes]) if (name !== "open" && !now.hasAttribute(name)) old.removeAttribute(name);
    for (const {name, value} of now.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const wanted = [...now.childNodes], keys = new Set(wanted.map(key));
    wanted.forEach((child, at) => {
      while (old.childNodes[at] && !keys.has(key(old.childNodes[at]))) old.childNodes[at].remove();
      if (alike(old.childNodes[at], child)) become(old.childNodes[at], child);
      else old.insertBefore(document.importNode(child, true), old.childNodes[at] ?? null);
    });
    while (old.childNodes.length > wanted.length) old.lastChild.remove();
  }

  async function ask() {
    let pause = every, reached = true;
    try {
      const options = {headers: {"If-None-Match": `"${tag}"`}, cache: "no-store", signal: AbortSignal.timeout(patience)};
      const answer = await fetch(location.pathname, options);
      if (answer.status === 200) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        become(document.body, page.body);
        document.title = page.title;
        tag = version(page);
      } else if (answer.status !== 304) {
        reached = false;
      }
    } catch {
      reached = false;
    }
    if (!reached) pause = afterFailure;
    document.getElementById("lost").hidden = reached;
    setTimeout(ask, pause);
  }

  setTimeout(ask, every);
})();
