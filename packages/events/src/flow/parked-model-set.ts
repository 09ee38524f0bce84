/** The models that have parked events for one handler, in the slots that this process holds. */
export class ParkedModelSet {
  /** With each model, which of all additions was its last one. */
  readonly #bySlot = new Map<number, Map<string, number>>();
  #additionCount = 0;
  #deletionCount = 0;

  get empty(): boolean {
    return this.#bySlot.size === 0;
  }

  /** How often a model was found to have no parked events any more. */
  get deletionCount(): number {
    return this.#deletionCount;
  }

  has(slot: number, model: string): boolean {
    return this.#bySlot.get(slot)?.has(model) ?? false;
  }

  add(slot: number, model: string): void {
    const models = this.#bySlot.get(slot) ?? new Map<string, number>();
    this.#bySlot.set(slot, models.set(model, ++this.#additionCount));
  }

  /** Which of all additions was the last one of a model; `undefined` when it is not in the set. */
  additionOf(slot: number, model: string): number | undefined {
    return this.#bySlot.get(slot)?.get(model);
  }

  delete(slot: number, model: string): void {
    const models = this.#bySlot.get(slot);
    models?.delete(model);
    if (models?.size === 0) this.#bySlot.delete(slot);
    this.#deletionCount++;
  }

  /** Forgets what belongs to a slot that is held no more. */
  drop(slot: number): void {
    this.#bySlot.delete(slot);
  }
}
