// Whoever has signed in and comes by a link of another site is asked to sign in all the
// same, for the browser doesn't show its cookie then: look again, from here, and from time
// to time, for somebody may be let in by then. What the link names is kept.
const every = 3000; // ms

document.querySelector("form").action = `/sign-in${location.hash}`;
try {
  // The page was open, and its browser isn't known any more.
  document.getElementById("ended").hidden = sessionStorage.getItem("fenceproxy-signed-out") === null;
  sessionStorage.removeItem("fenceproxy-signed-out");
} catch {
  // the browser keeps nothing
}

async function look() {
  try {
    const answer = document.hidden ? null : await fetch("/sign-in", { redirect: "manual" });
    if (answer?.type === "opaqueredirect") {
      location.replace(`/${location.hash}`);
      return;
    }
  } catch {
    // the proxy is away
  }
  setTimeout(look, every);
}
look();
