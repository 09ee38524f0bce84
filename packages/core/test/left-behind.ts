import { createHook } from 'node:async_hooks';
import { EventEmitter, getEventListeners } from 'node:events';

/**
 * Runs a round of work once, so that whatever lasts is created, and then several times more. Returns what grows with the rounds:
 * timers and connections that stay open, entries of maps and sets, and listeners of signals and emitters. Each has the line that
 * has added it.
 *
 * The subject is created before the rounds, which differ in what they pass to it, such as keys. The timers of `vi.useFakeTimers`
 * and of virtual clocks are not seen.
 *
 * @param options.patienceMs how long something may take to end on its own after the last round, such as a connection that the
 * other end has closed
 */
export async function leftBehind(
  round: (number: number) => unknown,
  { rounds = 3, patienceMs = 0 }: { readonly rounds?: number; readonly patienceMs?: number } = {},
): Promise<readonly string[]> {
  const handles = new Handles();
  const holders = new Holders();
  try {
    await round(0);
    await settled();
    handles.begin();
    holders.begin();
    for (let number = 1; number <= rounds; number++) await round(number);
    await settled();
    const found = (): readonly string[] => [...handles.open(), ...holders.grown()];
    for (const endMs = performance.now() + patienceMs; performance.now() < endMs; await settled())
      if (found().length === 0) break;
    return found();
  } finally {
    handles.end();
    holders.end();
  }
}

/** The reasons of promises that reject without a handler while the work runs, or in the turns of the event loop after it. */
export async function unhandledIn(work: () => unknown): Promise<readonly unknown[]> {
  const reasons: unknown[] = [];
  const onUnhandled = (reason: unknown): void => void reasons.push(reason);
  process.on('unhandledRejection', onUnhandled);
  try {
    await work();
    await settled();
    return reasons;
  } finally {
    process.off('unhandledRejection', onUnhandled);
  }
}

/** Node reports the end of handles, and rejections, in later turns of the event loop. */
async function settled(): Promise<void> {
  for (let turn = 0; turn < 3; turn++) await new Promise((resolve) => setImmediate(resolve));
}

const handleTypes: ReadonlySet<string> = new Set(['Timeout', 'TCPWRAP', 'PIPEWRAP', 'TCPSERVERWRAP']);

/** The timers, whether or not they keep the process alive, and the sockets that were opened and not closed. */
class Handles {
  readonly #open = new NativeMap<number, { readonly type: string; readonly opening: Error }>();
  #before: readonly string[] = [];
  readonly #hook = createHook({
    init: (id, type) => {
      if (handleTypes.has(type)) nativeSet.call(this.#open, id, { type, opening: here() });
    },
    destroy: (id) => void this.#open.delete(id),
  }).enable();

  begin(): void {
    this.#before = this.#all();
  }

  end(): void {
    this.#hook.disable();
  }

  /** Those that are open beyond as many from the same place as there were when the rounds began. */
  open(): readonly string[] {
    const before = [...this.#before];
    return this.#all().filter((each) => {
      const index = before.indexOf(each);
      if (index !== -1) before.splice(index, 1);
      return index === -1;
    });
  }

  #all(): readonly string[] {
    return [...this.#open.values()].flatMap(({ type, opening }) => {
      const place = placeOf(opening);
      return place === undefined ? [] : [`${type} of ${place}`];
    });
  }
}

/** Something to which entries or listeners are added, which holds them. */
interface Holder {
  readonly count: () => number;
  /** Where the first addition was seen. */
  readonly addition: Error;
  /** What it held when the rounds began; `undefined` if it is younger, and may last no longer than its round. */
  before: number | undefined;
}

/** Sees to which maps, sets, signals and emitters the code of the workspace adds, by replacing what adds to them. */
class Holders {
  readonly #all = new NativeMap<object, Holder>();
  readonly #restore: (() => void)[] = [];
  #isAdding = false;

  constructor() {
    this.#watch(Map.prototype, 'set', (map: Map<unknown, unknown>) => () => map.size);
    this.#watch(Set.prototype, 'add', (set: Set<unknown>) => () => set.size);
    this.#watch(
      EventTarget.prototype,
      'addEventListener',
      (target: EventTarget) => () => getEventListeners(target, 'abort').length,
    );
    for (const name of ['on', 'addListener', 'prependListener'] as const)
      this.#watch(EventEmitter.prototype, name, (emitter: EventEmitter) => () => {
        const names = emitter.eventNames();
        return names.reduce((sum, each) => sum + emitter.listenerCount(each), 0);
      });
  }

  begin(): void {
    for (const holder of this.#all.values()) holder.before = holder.count();
  }

  grown(): readonly string[] {
    return [...this.#all.values()]
      .filter(({ count, before }) => before !== undefined && count() > before)
      .flatMap(({ addition }) => {
        const place = placeOf(addition);
        const isOwn = place !== undefined && !place.includes('node_modules');
        return isOwn ? [`an entry or listener of ${place}`] : [];
      });
  }

  end(): void {
    for (const restore of this.#restore) restore();
  }

  #watch<Target extends object>(
    prototype: Target,
    name: keyof Target & string,
    counterOf: (target: Target) => () => number,
  ): void {
    const own = Object.getOwnPropertyDescriptor(prototype, name);
    const add: unknown = Reflect.get(prototype, name);
    if (own === undefined || typeof add !== 'function') throw new Error(`There is no ${name} to be watched`);
    const seen = (target: Target): void => this.#seen(target, counterOf);
    const watched = function (this: Target, ...values: readonly unknown[]): unknown {
      seen(this);
      return Reflect.apply(add, this, values);
    };
    Object.defineProperty(prototype, name, { ...own, value: watched });
    this.#restore.push(() => Object.defineProperty(prototype, name, own));
  }

  #seen<Target extends object>(target: Target, counterOf: (target: Target) => () => number): void {
    // What is added here is not looked at.
    if (this.#isAdding || this.#all.has(target)) return;
    this.#isAdding = true;
    nativeSet.call(this.#all, target, { count: counterOf(target), addition: here(), before: undefined });
    this.#isAdding = false;
  }
}

const NativeMap = Map;
// oxlint-disable-next-line typescript/unbound-method -- it is called with what it belongs to
const nativeSet = Map.prototype.set;

const framesMax = 40;

/** An error with a long stack trace, whose text is expensive, and is made only for what is reported. */
function here(): Error {
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = framesMax;
  const error = new Error('here');
  Error.stackTraceLimit = stackTraceLimit;
  return error;
}

/** The line of the nearest caller outside of Node and of this file; `undefined` for the test runner. */
function placeOf({ stack = '' }: Error): string | undefined {
  const lines = stack.split('\n').slice(1);
  const line = lines.find((each) => /[/\\]/.test(each) && !/\(?node:|[/\\]left-behind\.ts/.test(each));
  return line === undefined || /[/\\]@?vitest[/\\]/.test(line) ? undefined : line.trim();
}
