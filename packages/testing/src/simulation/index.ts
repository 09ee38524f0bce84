// In the order in which data flows: what is simulated, its choices, the result of a run, and its failure.
export { Simulation, type Exploration, type ExplorationReport } from './simulation.js';
export type {
  ProcessSetup,
  SimulationGiven,
  SimulationOptions,
  FaultKind,
  CommitListener,
  WatchedCommit,
  SimulationState,
} from './simulation-options.js';
export { type SimulationCall, callOf, type CallRecord } from './history.js';
export type { CallOutcome } from '../record/call-recorder.js';
export type { Choices, Script } from './choices.js';
export type { RunReport } from './simulation-run.js';
export { SimulationError } from './shrink.js';
