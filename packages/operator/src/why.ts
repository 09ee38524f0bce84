import type { DatabaseDelivery, LoggedAction, TrackedEvent } from '@framework/core/adapter';
import { DeliveryOperator, type EventExplanation, type HandlerStatus } from '@framework/events';

import { type OperatorFailure, ask, failureOf, operatorStoreOf } from './answers.js';
import type { Explanation, ExplanationSide, OperatorExtension } from './extension.js';

const eventsMax = 100;

/** What stands in the way of an event, a model, an action or one of the application's own things. */
export interface WhyAnswer {
  /** `extension` means that the application knows the id; `unknown` that nobody does. */
  readonly kind: 'event' | 'model' | 'action' | 'extension' | 'unknown';
  /** Plain sentences, the most important one first. */
  readonly sentences: readonly string[];
  readonly data: Readonly<Record<string, unknown>>;
  /** What lies on the shards concerned, where the application says so. */
  readonly sides: readonly ExplanationSide[];
  readonly failures: readonly OperatorFailure[];
}

/** What one database knows under an id. */
interface Known {
  readonly event?: LoggedExplanation;
  readonly model?: readonly TrackedEvent[];
  readonly action?: LoggedAction;
}

type LoggedExplanation = Extract<EventExplanation, { readonly kind: 'in-log' }>;

/** Explains what stands in the way of whatever has this id. */
export async function explainId(
  databases: readonly DatabaseDelivery[],
  extensions: readonly OperatorExtension[],
  id: string,
): Promise<WhyAnswer> {
  const failures: OperatorFailure[] = [];
  const own: Explanation[] = [];
  for (const extension of extensions) {
    try {
      const found = await extension.why?.(id);
      if (found !== undefined) own.push(found);
    } catch (error) {
      failures.push(failureOf([], error));
    }
  }
  const parts = await ask<Known>(databases, async (database) => {
    const operator = new DeliveryOperator({ deliveries: () => [database] });
    const event = await operator.explain(id);
    if (event.kind === 'in-log') return [{ event }];
    const store = operatorStoreOf(database);
    const { items: model } = await store.searchEvents({ modelId: id }, { limit: eventsMax });
    if (model.length > 0) return [{ model }];
    const action = await store.findAction(id);
    return action === undefined ? [] : [{ action }];
  });
  failures.push(...parts.failures);
  const [event] = parts.items.flatMap((part) => (part.event === undefined ? [] : [part.event]));
  if (event !== undefined) return { kind: 'event', ...explainedEvent(event), sides: [], failures };
  const models = parts.items.flatMap((part) => part.model ?? []);
  const actions = parts.items.flatMap((part) => (part.action === undefined ? [] : [part.action]));
  const ofModel = models.length > 0 ? explainedEvents('model', id, models) : undefined;
  if (own.length > 0 || ofModel !== undefined) {
    const all = [...own, ...(ofModel === undefined ? [] : [ofModel])];
    return {
      kind: own.length > 0 ? 'extension' : 'model',
      sentences: all.flatMap(({ sentences }) => sentences),
      data: Object.assign({}, ...all.map(({ data }) => data)) as Readonly<Record<string, unknown>>,
      sides: own.flatMap(({ sides = [] }) => sides),
      failures,
    };
  }
  if (actions.length > 0) {
    const events = actions.flatMap((action) => action.events);
    const { sentences, data } = explainedEvents('action', id, events);
    const names = [...new Set(actions.map(({ actionName }) => actionName))].join(', ');
    return {
      kind: 'action',
      sentences: [`${id} is the action ${names}; it is committed.`, ...sentences],
      data,
      sides: [],
      failures,
    };
  }
  const unsure = failures.length > 0 ? ' Some databases did not answer, and may know it.' : '';
  const unknown = `Nothing is known under ${id}: it was never committed, its transaction is still open, or its part of the log was dropped.`;
  return { kind: 'unknown', sentences: [`${unknown}${unsure}`], data: {}, sides: [], failures };
}

function explainedEvent(explanation: LoggedExplanation): Explanation {
  const { event, standings } = explanation;
  const about = `${event.type} of ${event.modelName} ${event.modelId}, version ${event.modelVersion}`;
  const waiting = standings.filter(({ kind }) => kind !== 'passed');
  const first =
    waiting.length === 0
      ? `${about}: every handler has passed it; nothing stands in its way.`
      : `${about}: ${waiting.length} of ${standings.length} handlers have not passed it.`;
  return { sentences: [first, ...waiting.map(statusText)], data: { event, standings } };
}

/** One sentence on why a handler has not passed an event. */
function statusText(standing: HandlerStatus): string {
  const { handler, paused } = standing;
  const pause = paused ? ' The handler is paused: resume it.' : '';
  if (standing.kind === 'dead-letter')
    return `${handler}: it is a dead letter after ${standing.attempts} attempts (${firstLine(standing.error)}). Replay it when the cause is fixed, or skip it.${pause}`;
  if (standing.kind === 'backing-off') {
    const { attempts, error, untilDate } = standing;
    if (error === undefined) {
      const state =
        attempts === 0
          ? 'it is due, and has not been tried yet'
          : `attempt ${attempts} has begun, and its end is not recorded yet`;
      return `${handler}: ${state}.${pause}`;
    }
    const next = `the next one is at ${untilDate?.toISOString() ?? 'once'}.${pause}`;
    return attempts === 0
      ? `${handler}: no attempt counts so far; the last call failed (${firstLine(error)}), and ${next}`
      : `${handler}: attempt ${attempts} failed (${firstLine(error)}); ${next}`;
  }
  if (standing.kind === 'behind') {
    const what = standing.behindDeadLetter
      ? 'a dead letter: replay or skip that one'
      : 'which will be tried by itself';
    return `${handler}: it waits for the earlier event ${standing.behindEventId} of its model, ${what}.${pause}`;
  }
  if (standing.kind === 'passed') return `${handler}: it has passed.`;
  return standing.leasedTo === undefined
    ? `${handler}: no process works in its slot: start a process that delivers.${pause}`
    : `${handler}: it has not been reached yet; process ${standing.leasedTo} works in its slot.${pause}`;
}

function firstLine(text: string | undefined): string {
  return text?.split('\n', 1)[0] ?? 'no error was recorded';
}

/** Says which of the given events some handler has not passed: those of a model, the newest first, or those of an action in their order. */
function explainedEvents(what: 'model' | 'action', id: string, events: readonly TrackedEvent[]): Explanation {
  const waiting = events.flatMap(({ event, deliveries }) =>
    deliveries.flatMap(({ handler, state }) =>
      state === 'passed' ? [] : [{ handler, state, eventId: event.id }],
    ),
  );
  const isCut = what === 'model' && events.length >= eventsMax;
  const counted = `${events.length}${isCut ? ' newest' : ''} events of the ${what} ${id}`;
  if (waiting.length === 0)
    return { sentences: [`Every handler has passed the ${counted}.`], data: { events, waiting } };
  const worstFirst = waiting.toSorted((one, other) => severity[other.state] - severity[one.state]);
  const groups = Map.groupBy(worstFirst, ({ handler, state }) => `${handler}: ${stateText[state]}`);
  const lines = [...groups].map(
    ([text, all]) =>
      `${text} ${all.length} of the ${counted}; ask about ${all.at(what === 'model' ? -1 : 0)?.eventId ?? ''}, the first one.`,
  );
  return { sentences: lines, data: { events, waiting } };
}

/** The severity of a state. */
const severity = { passed: 0, pending: 1, blocked: 2, 'dead-letter': 3 } as const;

const stateText = {
  passed: 'has passed',
  pending: 'has not reached',
  blocked: 'waits with',
  'dead-letter': 'has as dead letters',
} as const;
