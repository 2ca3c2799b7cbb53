//! Steps as numbers: who waits for whom.
//!
//! In: names with their needs, in the order of the plan. Out: circles, waiting counts, the longest path.
//! Fails: never; a need without a step is left out here and refused by the plan.

use std::{collections::BTreeMap, time::Duration};

use crate::plan::StepId;

#[derive(Clone, Debug)]
pub(crate) struct Graph {
    needs: Vec<Vec<usize>>,
    dependents: Vec<Vec<usize>>,
}

impl Graph {
    pub(crate) fn new<'a>(steps: impl Iterator<Item = (&'a StepId, &'a [StepId])> + Clone) -> Self {
        let index: BTreeMap<&StepId, usize> = steps.clone().enumerate().map(|(at, (id, _))| (id, at)).collect();
        let mut needs: Vec<Vec<usize>> = Vec::new();
        for (_, names) in steps {
            let mut known: Vec<usize> = names.iter().filter_map(|name| index.get(name).copied()).collect();
            // A need that is named twice is still one step to wait for.
            known.sort_unstable();
            known.dedup();
            needs.push(known);
        }
        let mut dependents = vec![Vec::new(); needs.len()];
        for (step, needs) in needs.iter().enumerate() {
            for &need in needs {
                dependents[need].push(step);
            }
        }
        Self { needs, dependents }
    }

    pub(crate) fn len(&self) -> usize {
        self.needs.len()
    }

    pub(crate) fn needs(&self, step: usize) -> &[usize] {
        &self.needs[step]
    }

    pub(crate) fn dependents(&self, step: usize) -> &[usize] {
        &self.dependents[step]
    }

    /// Every step after its needs; steps on or behind a circle are missing.
    fn order(&self) -> Vec<usize> {
        let mut waiting: Vec<usize> = self.needs.iter().map(Vec::len).collect();
        let mut order: Vec<usize> = (0..self.len()).filter(|&step| waiting[step] == 0).collect();
        let mut next = 0;
        while next < order.len() {
            for &dependent in &self.dependents[order[next]] {
                waiting[dependent] -= 1;
                if waiting[dependent] == 0 {
                    order.push(dependent);
                }
            }
            next += 1;
        }
        order
    }

    /// Some circle, as steps of which each needs the next.
    pub(crate) fn find_cycle(&self) -> Option<Vec<usize>> {
        let mut stuck = vec![true; self.len()];
        for step in self.order() {
            stuck[step] = false;
        }
        // Every stuck step has a stuck need: walking along those must meet a step again.
        let mut walk: Vec<usize> = Vec::new();
        let mut step = (0..self.len()).find(|&step| stuck[step])?;
        loop {
            if let Some(start) = walk.iter().position(|&seen| seen == step) {
                return Some(walk.split_off(start));
            }
            walk.push(step);
            step = self.needs[step].iter().copied().find(|&need| stuck[need])?;
        }
    }

    /// The chain with the greatest sum; of equal ones the chain over earlier steps. It never begins or ends with an instant.
    pub(crate) fn longest_path(&self, weights: &[Duration]) -> Vec<usize> {
        let mut total = vec![Duration::ZERO; self.len()];
        let mut before: Vec<Option<usize>> = vec![None; self.len()];
        let mut last: Option<usize> = None;
        for step in self.order() {
            for &need in &self.needs[step] {
                if total[need] > before[step].map_or(Duration::ZERO, |best| total[best]) {
                    before[step] = Some(need);
                }
            }
            total[step] = weights[step] + before[step].map_or(Duration::ZERO, |best| total[best]);
        }
        for step in 0..self.len() {
            if total[step] > last.map_or(Duration::ZERO, |best| total[best]) {
                last = Some(step);
            }
        }
        let mut path = Vec::new();
        while let Some(step) = last {
            path.push(step);
            last = before[step];
        }
        path.reverse();
        path
    }

    /// All steps that must be done before this one, near and far.
    pub(crate) fn all_needs(&self, step: usize) -> Vec<usize> {
        let mut seen = vec![false; self.len()];
        let mut queue = self.needs[step].clone();
        while let Some(need) = queue.pop() {
            if !std::mem::replace(&mut seen[need], true) {
                queue.extend(&self.needs[need]);
            }
        }
        (0..self.len()).filter(|&need| seen[need]).collect()
    }
}
