// What it means that the proxy answers, but not with what the page asks for.
import { counted, shown } from "./text.js";

const mostWords = 300; // of an answer in somebody's words

// refusalOf returns what people are told, "" if it isn't the proxy that answers, and how
// long to wait before it is asked again, in ms.
export async function refusalOf(answer) {
  const wait = 1000 * Math.max(0, Number.parseInt(answer.headers.get("Retry-After"), 10) || 0);
  if (answer.type === "opaqueredirect") {
    return { why: "Something before the proxy sends this page elsewhere, perhaps to sign in: load it again.", wait };
  }
  if (answer.status === 429) {
    const long = wait ? `for ${counted(wait / 1000, "second")}` : "for a moment";
    return { why: `Too many wrong tokens came from your address: the proxy holds it off ${long}.`, wait };
  }
  if (answer.status >= 500) {
    return { why: "", wait };
  }
  const words = (await answer.text()).trim().slice(0, mostWords);
  const what = answer.status === 401 ? "The proxy doesn't know this browser any more" : `The proxy refuses this page (${answer.status})`;
  return { why: words ? `${what}: ${shown(words)}` : `${what}.`, wait };
}
