import { InvariantViolation } from '../errors/invariant-violation.js';
import { type EventClass, eventTypeOf } from './model-event.js';

/** The classes of events by the `event_type` under which the log knows them: one for each. */
export class EventTypes {
  readonly #classes = new Map<string, EventClass>();

  /**
   * The `event_type` of a class, which is this class's from now on.
   *
   * @throws InvariantViolation `invariant-violation` when it is that of another class: handlers of the one would get
   * the other one's events
   */
  claim(eventClass: EventClass): string {
    const type = eventTypeOf(eventClass);
    const known = this.#classes.get(type);
    if (known === undefined) this.#classes.set(type, eventClass);
    else if (known !== eventClass) {
      throw new InvariantViolation(
        `Two event classes have the event_type ${type}: declare another static readonly eventType on one`,
      );
    }
    return type;
  }
}
