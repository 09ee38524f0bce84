/** The models that have parked events for one handler, in the slots that this process holds. */
export class ParkedModelSet {
  readonly #bySlot = new Map<number, Set<string>>();

  get empty(): boolean {
    return this.#bySlot.size === 0;
  }

  has(slot: number, model: string): boolean {
    return this.#bySlot.get(slot)?.has(model) ?? false;
  }

  add(slot: number, model: string): void {
    const models = this.#bySlot.get(slot) ?? new Set();
    this.#bySlot.set(slot, models.add(model));
  }

  delete(slot: number, model: string): void {
    const models = this.#bySlot.get(slot);
    models?.delete(model);
    if (models?.size === 0) this.#bySlot.delete(slot);
  }

  /** Forgets what belongs to a slot that is held no more. */
  drop(slot: number): void {
    this.#bySlot.delete(slot);
  }
}
