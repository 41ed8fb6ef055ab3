// The page over HTTP: the token comes in the fragment of the address and is taken out of it at once.

import { overHttp } from "./ask.js";
import { h } from "./dom.js";
import { mount } from "./explorer.js";
import { Table } from "./table.js";

const KEPT = "needlepoint-token"; // in the storage of this tab only, so that the page can be loaded again

function token() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(KEPT, given);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return sessionStorage.getItem(KEPT) ?? "";
}

async function open() {
  const root = document.getElementById("explorer");
  const ask = overHttp(token());
  const table = await Table.load(new URL("../table/best.json", import.meta.url));
  const explorer = mount(root, { ask, table });
  try {
    const [own] = (await ask({ kind: "hello" })).filter((event) => event.event === "own");
    if (own && (own.folders || own.task.length || own.model.length || own.activation.length)) explorer.owned(own);
  } catch (error) {
    root.append(h("p", { className: "problem" }, error.message));
  }
}

open();
