// Pages that are opened as files may start no worker, and the search runs in one. There its script runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.documentElement.appendChild(this.frame)
      const inside = this.frame.contentWindow
      const tell = (data) => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        if (this.onmessage) this.onmessage(event)
      }
      inside.document.open()
      inside.document.write("<!doctype html><title>search</title>")
      inside.document.close()
      inside.postMessage = (data) => setTimeout(() => tell(data))
      inside.importScripts = (...addresses) => Promise.all(addresses.map((each) => this.load(each)))
      this.load(new URL(address, location.href).href).then(() => {
        this.ready = true
        this.waiting.splice(0).forEach((data) => this.postMessage(data))
      })
    }

    load(address) {
      return new Promise((done, failed) => {
        const script = this.frame.contentDocument.createElement("script")
        script.src = address
        script.onload = done
        script.onerror = failed
        this.frame.contentDocument.body.appendChild(script)
      })
    }

    postMessage(data) {
      if (this.ready) setTimeout(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
      else this.waiting.push(data)
    }

    terminate() {
      this.frame.remove()
    }
  }
}
