// What happens, as server-sent events, and how the connection is.

const again = 3000; // ms

// A Stream follows /api/events while the page can be seen. After a break it goes on
// behind the last event that it has got.
export class Stream {
  // on has: state(name), hello({resumed, restarted}), happened(event), missed(count), and
  // refused(answer), which returns when to ask again.
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
    const timer = setTimeout(() => this.start(), again);
    this.timer = timer;
    try {
      const answer = await fetch("/api/state", { redirect: "manual" });
      const wait = answer.ok ? 0 : await this.on.refused(answer);
      const full = answer.ok && (await answer.json()).full;
      if (this.timer !== timer || this.source !== null) {
        return; // it goes on already
      }
      if (full) {
        this.on.state("full");
      } else if (!answer.ok && answer.status < 500) {
        this.on.state("refused");
      }
      if (wait > again) {
        clearTimeout(timer);
        this.timer = setTimeout(() => this.start(), wait);
      }
    } catch {
      // the proxy is away, which the state says already
    }
  }
}
