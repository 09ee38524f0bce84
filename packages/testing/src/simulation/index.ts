// In the order in which a datum flows: what is simulated, its choices, what a run leaves behind, and how it fails.
export { Simulation, type Exploration, type ExplorationReport } from './simulation.js';
export type { ProcessSetup, SimulationGiven, SimulationOptions } from './simulation-options.js';
export { type SimulationCall, callOf } from './history.js';
export type { FaultKind } from './fault-kinds.js';
export type { Choices, Script } from './choices.js';
export type { CommitListener, WatchedCommit } from './simulation-options.js';
export type { SimulationState } from './simulation-options.js';
export type { CallOutcome, CallRecord } from './history.js';
export type { RunReport } from './simulation-run.js';
export { SimulationError } from './shrink.js';
