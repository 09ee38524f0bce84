import { type DeliveryStore, outsideRequests } from '@framework/core';

type PauseListener = (handler: string, paused: boolean) => void;

/** Those who deliver in this process, by the store that they share with its operators. */
const listenersByStore = new WeakMap<DeliveryStore, Set<PauseListener>>();

/** Listens for what operators of this process pause and resume, by permanent ids; gives what ends it. */
export function onPause(store: DeliveryStore, listener: PauseListener): () => void {
  const listeners = listenersByStore.get(store) ?? new Set();
  listenersByStore.set(store, listeners.add(listener));
  return () => listeners.delete(listener);
}

/** Tells at once what other processes learn when they renew their leases; what goes on by it is no part of the operator's request. */
export function tellPause(store: DeliveryStore, handler: string, paused: boolean): void {
  for (const listener of listenersByStore.get(store) ?? []) outsideRequests(() => listener(handler, paused));
}
