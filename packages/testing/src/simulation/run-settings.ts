import type { ExecutorOptions } from '@framework/core';
import type { DeliveryOverrides } from '@framework/events';
import { type DeliveryTuning, tuned } from '@framework/events/internal';

import type { Choices } from './choices.js';
import {
  type FaultKind,
  type NemesisKind,
  type NetworkFaultKind,
  type SimulationGiven,
  type SimulationOptions,
  nemesisKinds,
  passageFaultKinds,
} from './simulation-options.js';

const processesMax = 3;
const defaultFaults = [...passageFaultKinds, ...nemesisKinds].filter((kind) => kind !== 'lossy-failover');

/** Short times, so that a run sees many leases and retries. */
const deliveryDefaults = {
  leaseMs: 3_000,
  pollMinMs: 200,
  pollMaxMs: 2_000,
  blockedPollMs: 2_000,
  cursorSaveMs: 200,
  cursorSaveMaxMs: 2_000,
  cursorRestSaveMs: 1_000,
  timeoutMs: 2_000,
  quarantineMs: 200,
  storeBackoffMaxMs: 1_000,
  stopTimeoutMs: 1_000,
  abandonedForMs: 2_000,
  outageBackoffMaxMs: 2_000,
} satisfies DeliveryOverrides & Partial<DeliveryTuning>;
const handlerRetryDefaults = {
  attemptsMax: 4,
  backoffBaseMs: 100,
  backoffMaxMs: 2_000,
};

/** The faults that a run may have: without a second version of the code, there is nothing to roll out. */
function possibleFaults<Given extends SimulationGiven>({
  faults = defaultFaults,
  versions = 1,
}: SimulationOptions<Given>): readonly FaultKind[] {
  return faults.filter((kind) => kind !== 'rollout' || versions > 1);
}

/** The settings of a run as a whole. */
export interface RunSettings {
  readonly processCount: number;
  readonly executor: Pick<ExecutorOptions, 'groupCommit' | 'modelLocks'>;
  readonly passageKinds: readonly NetworkFaultKind[];
  readonly nemesisKinds: readonly NemesisKind[];
  /** The share of messages that have a fault, from 0 to 1. */
  readonly share: number;
  /** The share of the other messages that take a step of their own, from 0 to 1. */
  readonly ownStepShare: number;
  /** The number of different times at which calls start. */
  readonly burstCount: number;
  /** The share of the possible calls that are made, from 0 to 1. */
  readonly callShare: number;
  readonly delivery: DeliveryOverrides &
    Required<Pick<DeliveryOverrides, 'leaseMs' | 'timeoutMs' | 'stopTimeoutMs'>>;
  readonly attemptsMax: number;
  /** The settings as text. */
  readonly text: string;
}

/** Chooses everything that the options leave open. */
export function chooseSettings<Given extends SimulationGiven>(
  options: SimulationOptions<Given>,
  choices: Choices,
): RunSettings {
  const processCount = 1 + choices.below(processesMax);
  const executor = {
    groupCommit: options.groupCommit ?? choices.pick([false, true, { plansMax: 2 }]),
    modelLocks: options.modelLocks ?? choices.chance(0.5),
  };
  const kinds = choices.some(possibleFaults(options), 0.35);
  const share = choices.pick([0, 0.01, 0.03, 0.1]);
  const ownStepShare = choices.pick([1, 0.5, 0.2]);
  const burstCount = choices.pick([2, 1, 4, 8]);
  const callShare = choices.pick([0.3, 0.9]);
  const own = {
    readMax: choices.pick([1_000, 2, 10]),
    concurrency: choices.pick([16, 1, 3]),
    abandonedMax: choices.pick([64, 1, 3]),
  };
  const retry = { ...handlerRetryDefaults, ...options.delivery?.retry };
  const delivery = tuned({ ...deliveryDefaults, ...own, ...options.delivery, retry });
  return {
    processCount,
    executor,
    passageKinds: passageFaultKinds.filter((kind) => kinds.includes(kind)),
    nemesisKinds: nemesisKinds.filter((kind) => kinds.includes(kind)),
    share,
    ownStepShare,
    burstCount,
    callShare,
    delivery,
    attemptsMax: retry.attemptsMax,
    text: JSON.stringify({ processes: processCount, ...executor, share, faults: kinds }),
  };
}
