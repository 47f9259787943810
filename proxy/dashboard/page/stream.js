// What happens, as server-sent events, and how the connection is.

const again = 3000; // ms

// A Stream follows /api/events while the page can be seen. After a break it goes on
// behind the last event that it has got.
export class Stream {
  // on has: state(name), hello({resumed, restarted}), happened(event), missed(count),
  // and signedOut().
  constructor(on) {
    this.on = on;
    this.last = "";
    this.source = null;
    this.timer = 0;
    // Browsers allow a host few connections: a page that nobody sees needs none.
    document.addEventListener("visibilitychange", () => (document.hidden ? this.stop() : this.start()));
    this.start();
  }

  stop() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  start() {
    this.stop();
    if (document.hidden) {
      return;
    }
    const source = new EventSource(`/api/events?after=${encodeURIComponent(this.last)}`);
    this.source = source;
    source.onopen = () => this.on.state("live");
    source.onerror = () => this.broken(source);
    source.addEventListener("hello", (e) => this.on.hello(JSON.parse(e.data)));
    source.addEventListener("missed", (e) => this.on.missed(JSON.parse(e.data).count));
    source.addEventListener("happened", (e) => {
      this.last = e.lastEventId;
      this.on.happened(JSON.parse(e.data));
    });
  }

  // broken waits for the browser, which tries again by itself, unless the proxy has
  // answered with an error.
  async broken(source) {
    this.on.state("reconnecting");
    if (source.readyState !== EventSource.CLOSED || source !== this.source) {
      return;
    }
    this.stop();
    this.timer = setTimeout(() => this.start(), again);
    try {
      const answer = await fetch("/api/state", { redirect: "error" });
      if (answer.status === 401) {
        this.on.signedOut();
      } else if ((await answer.json()).full) {
        this.on.state("full");
      }
    } catch {
      // the proxy is away, which the state says already
    }
  }
}
