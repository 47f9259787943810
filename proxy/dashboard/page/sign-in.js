// Whoever has signed in and comes by a link of another site is asked to sign in all the
// same, for the browser doesn't show its cookie then: look again, from here. What the
// link names is kept.
const form = document.querySelector("form");
form.action = `/sign-in${location.hash}`;
const answer = await fetch("/sign-in", { redirect: "manual" });
if (answer.type === "opaqueredirect") {
  location.replace(`/${location.hash}`);
}
