/** A message as a consumer receives it: the attributes of the CloudEvent by their names, and the body. */
export interface ArrivedMessage {
  readonly attributes: Readonly<Record<string, string>>;
  readonly body: string;
}

/** What has arrived at a consumer, which recognises repeats by their ids. */
export class Arrivals {
  /** Repeats of an id that had other bytes than its first arrival. */
  readonly changed: ArrivedMessage[] = [];
  repeatCount = 0;
  /** The whole message by its id, in the order of the first arrivals. */
  readonly #messages = new Map<string, string>();
  readonly #versions = new Map<string, number[]>();

  /** How many different events have arrived. */
  get count(): number {
    return this.#messages.size;
  }

  /** The ids of the events, each once. */
  get ids(): readonly string[] {
    return [...this.#messages.keys()];
  }

  /** The versions of each model, in the order of their first arrivals. */
  get versions(): ReadonlyMap<string, readonly number[]> {
    return this.#versions;
  }

  add(message: ArrivedMessage): void {
    const { id = '', subject = '', modelversion } = message.attributes;
    const attributes = Object.entries(message.attributes).map(([name, value]) => `${name}: ${value}`);
    const bytes = [...attributes.toSorted(), message.body].join('\n');
    const first = this.#messages.get(id);
    if (first !== undefined) {
      this.repeatCount++;
      if (first !== bytes) this.changed.push(message);
      return;
    }
    this.#messages.set(id, bytes);
    const versions = this.#versions.get(subject) ?? [];
    this.#versions.set(subject, versions);
    versions.push(Number(modelversion));
  }
}
